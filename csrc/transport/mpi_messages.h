// Messages between two ranks, on a communicator of their own, for what is not training: every wait
// has a time limit, so a rank that is gone makes nobody hang. Made by a collective call of all
// ranks; then any thread may call, one at a time for each tag.
#ifndef HVD_P3_TRANSPORT_MPI_MESSAGES_H_
#define HVD_P3_TRANSPORT_MPI_MESSAGES_H_

#include <memory>
#include <string>

#include "core/status.h"
#include "transport/mpi_support.h"

namespace hvd_p3 {

class MpiMessages {
 public:
  // Collective over all ranks of MPI_COMM_WORLD.
  static Status Make(std::unique_ptr<MpiMessages>* made);

  // Both return kTransport after `timeout_s` seconds. What was not sent by then may yet arrive, so
  // give a later conversation another tag.
  Status Send(int to, int tag, const std::string& bytes, double timeout_s);
  Status Receive(int from, int tag, double timeout_s, std::string* bytes);

 private:
  explicit MpiMessages(std::unique_ptr<MpiCommunicator> communicator)
      : communicator_(std::move(communicator)) {}

  const std::unique_ptr<MpiCommunicator> communicator_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_MPI_MESSAGES_H_
