// Negotiation over MPI. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_MPI_CONTROL_H_
#define HVD_P3_TRANSPORT_MPI_CONTROL_H_

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "transport/mpi_requests.h"
#include "transport/mpi_support.h"
#include "transport/transport.h"

namespace hvd_p3 {

class MpiControlChannel : public ControlChannel {
 public:
  MpiControlChannel(std::unique_ptr<MpiCommunicator> communicator,
                    std::shared_ptr<MpiRequests> requests)
      : communicator_(std::move(communicator)), requests_(std::move(requests)) {}

  ~MpiControlChannel() override;

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  Status StartAnd(std::vector<uint64_t>* words, std::unique_ptr<Collective>* collective) override;
  Status StartAllGather(const std::string& mine, std::vector<std::string>* all,
                        std::unique_ptr<Collective>* collective) override;
  Status Send(int rank, std::string message) override;
  bool sending() const override;
  Status Receive(int* rank, std::string* message, bool* received) override;
  Status Progress() override { return requests_->Progress(); }
  bool Abort() override { return true; }  // MPI cannot cancel what is under way

 private:
  const std::unique_ptr<MpiCommunicator> communicator_;
  const std::shared_ptr<MpiRequests> requests_;
  struct Outgoing {
    std::string bytes;
    int pending = 0;
  };
  std::list<Outgoing> outgoing_;  // a list: requests refer to its elements
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_MPI_CONTROL_H_
