#include "transport/mpi_algorithm.h"

#include <mpi.h>

namespace hvd_p3 {
namespace {

constexpr char kOpenMpiVariable[] = "coll_libnbc_iallreduce_algorithm";
constexpr int kLibraryChooses = 0;
constexpr int kRing = 1;
constexpr int kRabenseifner = 3;

}  // namespace

void ChooseAllReduceAlgorithm(int size) {
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return;
  // MPI_T stays initialised: the variable keeps its value only as long as something uses it.
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
    algorithm = power_of_two ? kRabenseifner : kRing;
    MPI_T_cvar_write(handle, &algorithm);
  }
  MPI_T_cvar_handle_free(&handle);
}

}  // namespace hvd_p3
