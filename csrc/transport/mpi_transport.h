// Slices in host memory over MPI. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_MPI_TRANSPORT_H_
#define HVD_P3_TRANSPORT_MPI_TRANSPORT_H_

#include <memory>

#include "transport/mpi_requests.h"
#include "transport/mpi_support.h"
#include "transport/transport.h"

namespace hvd_p3 {

class MpiTransport : public Transport {
 public:
  MpiTransport(std::unique_ptr<MpiCommunicator> communicator, std::shared_ptr<MpiRequests> requests,
               bool sums_independent_of_slices);
  ~MpiTransport() override;

  Status Start(const SliceReduction& reduction, std::unique_ptr<Collective>* collective) override;
  bool sums_independent_of_slices() const override { return sums_independent_of_slices_; }
  // The control channel, which shares the requests, tests them.
  Status Progress() override { return {}; }
  bool Abort() override { return true; }  // MPI cannot cancel a collective

 private:
  class Operations;
  class Slice;

  const std::unique_ptr<MpiCommunicator> communicator_;
  const std::unique_ptr<Operations> operations_;
  const std::shared_ptr<MpiRequests> requests_;
  const bool sums_independent_of_slices_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_MPI_TRANSPORT_H_
