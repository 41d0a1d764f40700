// The MPI requests in flight of this process's engine, tested together: MPI looks at its sockets
// once for all of them, which is most of the cost of a test. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_MPI_REQUESTS_H_
#define HVD_P3_TRANSPORT_MPI_REQUESTS_H_

#include <mpi.h>

#include <vector>

#include "core/status.h"

namespace hvd_p3 {

class MpiRequests {
 public:
  // `*pending` is reduced by one when the request is complete. It must stay where it is until then.
  void Add(MPI_Request request, int* pending);
  // Tests all, without blocking.
  Status Progress();

 private:
  std::vector<MPI_Request> requests_;
  std::vector<int*> pending_;  // of the request with the same index
  std::vector<int> complete_;  // kept to save the allocation
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_MPI_REQUESTS_H_
