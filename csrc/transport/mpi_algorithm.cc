#include "transport/mpi_algorithm.h"

#include <mpi.h>

namespace hvd_p3 {
namespace {

constexpr char kOpenMpiVariable[] = "coll_libnbc_iallreduce_algorithm";
constexpr int kLibraryChooses = 0;
constexpr int kRing = 1;
constexpr int kRabenseifner = 3;

}  // namespace

bool ChooseAllReduceAlgorithm(int size) {
  const bool two_terms = size <= 2;  // there is one way to add two numbers
  int provided = 0;
  // MPI_T stays initialised: the variable keeps its value only as long as something uses it.
  if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return two_terms;
  int index = 0;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int count = 0;
  if (MPI_T_cvar_get_index(kOpenMpiVariable, &index) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) {
    return two_terms;
  }
  int algorithm = kLibraryChooses;
  if (count == 1 && MPI_T_cvar_read(handle, &algorithm) == MPI_SUCCESS &&
      algorithm == kLibraryChooses) {
    const bool power_of_two = (size & (size - 1)) == 0;
    const int chosen = power_of_two ? kRabenseifner : kRing;
    if (MPI_T_cvar_write(handle, &chosen) == MPI_SUCCESS) algorithm = chosen;
  }
  MPI_T_cvar_handle_free(&handle);
  return two_terms || algorithm == kRabenseifner;
}

}  // namespace hvd_p3
