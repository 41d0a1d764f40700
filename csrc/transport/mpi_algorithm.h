// Chooses the algorithm of MPI_Iallreduce through MPI's tool interface (MPI_T).
#ifndef HVD_P3_TRANSPORT_MPI_ALGORITHM_H_
#define HVD_P3_TRANSPORT_MPI_ALGORITHM_H_

#include "core/status.h"
#include "transport/mpi_support.h"

namespace hvd_p3 {

// Left to itself, Open MPI takes for non-blocking all-reduces below 64 KiB, on fewer than four
// ranks, or in place, a reduction to one rank and a broadcast, which sends up to `size` times as
// much over that rank's link as is needed. This asks for the algorithms that send
// 2 (size - 1) / size of a slice over each link:
//  - for 2^k ranks a recursive halving and doubling (Rabenseifner), which also adds the ranks'
//    elements in the same order whatever a slice's length, so that sums do not depend on
//    slice_bytes;
//  - for other numbers of ranks a ring.
// Affects all of the process's non-blocking all-reduces; Horovod's are blocking. Leaves an
// algorithm that the user has chosen, and does nothing where the MPI library has no such choice.
// Call once, after MPI is initialised.
void ChooseAllReduceAlgorithm(int size);

// Whether each element of a sum is the same bits wherever in a slice of whatever length it stands:
// tried out on numbers of many magnitudes, and false unless it holds on all ranks. Collective.
Status TrySumsIndependentOfSlices(const MpiCommunicator& communicator, bool* independent);

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_MPI_ALGORITHM_H_
