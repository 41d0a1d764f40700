// Slices in host memory over MPI. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_MPI_TRANSPORT_H_
#define HVD_P3_TRANSPORT_MPI_TRANSPORT_H_

#include <memory>
#include <vector>

#include "transport/mpi_support.h"
#include "transport/transport.h"

namespace hvd_p3 {

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(std::unique_ptr<MpiCommunicator> communicator);
  ~MpiTransport() override;

  Status Start(const SliceReduction& reduction, std::unique_ptr<Collective>* collective) override;
  Status Progress() override;
  bool Abort() override { return true; }  // MPI cannot cancel a collective

 private:
  class Operations;
  class Slice;

  const std::unique_ptr<MpiCommunicator> communicator_;
  const std::unique_ptr<Operations> operations_;
  // In flight, index by index: one call then tests all, and MPI looks at its sockets once.
  std::vector<MPI_Request> requests_;
  std::vector<Slice*> slices_;  // owned by the engine
  std::vector<int> complete_;   // indices, kept to save the allocation
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_MPI_TRANSPORT_H_
