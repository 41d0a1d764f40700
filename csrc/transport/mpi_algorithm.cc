#include "transport/mpi_algorithm.h"

#include <mpi.h>

#include <cmath>
#include <vector>

namespace hvd_p3 {
namespace {

constexpr char kOpenMpiVariable[] = "coll_libnbc_iallreduce_algorithm";
constexpr int kLibraryChooses = 0;
constexpr int kRing = 1;
constexpr int kRabenseifner = 3;

// Sums `values` over the ranks as slices of these lengths, in place as all slices are.
Status Sum(const MpiCommunicator& communicator, const std::vector<float>& values,
           const std::vector<int>& lengths, std::vector<float>* sums) {
  *sums = values;
  size_t offset = 0;
  for (const int length : lengths) {
    MPI_Request request = MPI_REQUEST_NULL;
    Status status = FromMpi(MPI_Iallreduce(MPI_IN_PLACE, sums->data() + offset, length, MPI_FLOAT,
                                           MPI_SUM, communicator.get(), &request),
                            "MPI_Iallreduce");
    if (status.ok()) status = FromMpi(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    if (!status.ok()) return status;
    offset += static_cast<size_t>(length);
  }
  return {};
}

}  // namespace

void ChooseAllReduceAlgorithm(int size) {
  int provided = 0;
  // MPI_T stays initialised: the variable keeps its value only as long as something uses it.
  if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return;
  int index = 0;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int count = 0;
  if (MPI_T_cvar_get_index(kOpenMpiVariable, &index) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) {
    return;
  }
  int algorithm = kLibraryChooses;
  if (count == 1 && MPI_T_cvar_read(handle, &algorithm) == MPI_SUCCESS &&
      algorithm == kLibraryChooses) {
    const bool power_of_two = (size & (size - 1)) == 0;
    const int chosen = power_of_two ? kRabenseifner : kRing;
    MPI_T_cvar_write(handle, &chosen);
  }
  MPI_T_cvar_handle_free(&handle);
}

Status TrySumsIndependentOfSlices(const MpiCommunicator& communicator, bool* independent) {
  constexpr int kElements = 4099;
  // Exponents differ between neighbours and ranks, so that another order rounds otherwise.
  std::vector<float> values(kElements);
  for (int i = 0; i < kElements; ++i) {
    const int random = (i * 7919 + communicator.rank() * 104729) % 8191;
    const int exponent = (i + 5 * communicator.rank()) % 23 - 11;
    values[static_cast<size_t>(i)] =
        std::ldexp(1.0f + static_cast<float>(random) / 8191.0f, exponent);
  }
  std::vector<float> whole;
  std::vector<float> pieces;
  Status status = Sum(communicator, values, {kElements}, &whole);
  if (status.ok()) status = Sum(communicator, values, {17, 1023, 2048, 1011}, &pieces);
  if (!status.ok()) return status;
  int same = whole == pieces ? 1 : 0;
  status = FromMpi(MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, communicator.get()),
                   "MPI_Allreduce");
  *independent = same == 1;
  return status;
}

}  // namespace hvd_p3
