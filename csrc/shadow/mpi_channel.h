// A channel over MPI, on a communicator of its own. Made by a collective call of all ranks, from a
// thread that makes no other collective call meanwhile; then see channel.h.
#ifndef HVD_P3_SHADOW_MPI_CHANNEL_H_
#define HVD_P3_SHADOW_MPI_CHANNEL_H_

#include <mpi.h>
#include <unistd.h>

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "shadow/channel.h"
#include "transport/mpi_support.h"

namespace hvd_p3 {

class MpiChannel : public Channel {
 public:
  // Collective over all ranks of MPI_COMM_WORLD, which must give the same name: kMismatch if not.
  // kTimedOut if a rank does not come within `timeout_s` seconds.
  static Status Make(const std::string& name, double timeout_s, std::shared_ptr<MpiChannel>* made);
  // Closes all channels of the process. Before MPI ends.
  static void CloseAll();

  ~MpiChannel() override;

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  Status Send(int to, int tag, const void* data, size_t bytes) override;
  Status Flush(double timeout_s) override;
  Status Receive(int from, int tag, double timeout_s, ChannelMessage* message) override;
  Status AllReduce(void* data, int64_t count, DataType dtype, const std::vector<int>& members,
                   int64_t generation, int64_t slice_bytes, double timeout_s) override;
  void Close() override;

 private:
  struct Outgoing {
    std::vector<char> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  // A message that has begun to arrive. One whose sender dies meanwhile stays for ever, and keeps
  // back no other than later ones of the same sender and tag.
  struct Arriving {
    int from = 0;
    int tag = 0;
    std::vector<char> bytes;
    MPI_Request request = MPI_REQUEST_NULL;  // MPI_REQUEST_NULL when it is all here
  };
  struct Slice;
  // Members of sums, and their generation.
  using SumKey = std::pair<std::vector<int>, int64_t>;

  MpiChannel(const std::string& name, std::unique_ptr<MpiCommunicator> communicator);

  // Calls `function` unless the channel is closed or MPI has ended; Close() waits for it.
  template <typename Function>
  Status InMpi(const Function& function);
  Status CheckSameName(double timeout_s);
  // As Send and Receive, with the tag of sums, too.
  Status SendAny(int to, int tag, const void* data, size_t bytes);
  Status ReceiveAny(int from, int tag, double timeout_s, ChannelMessage* message);
  Status TestOutgoing(bool* all_sent);
  Status TakeMessage(int from, int tag, bool* taken, ChannelMessage* message);
  bool TakeArrived(int from, int tag, ChannelMessage* message);
  Status StartArriving(int from, int tag, bool* started);
  Status SumOfAll(char* data, int64_t count, DataType dtype, int64_t slice_bytes, double timeout_s);
  Status SumOfSome(char* data, int64_t count, DataType dtype, const SumKey& key,
                   int64_t slice_bytes, double timeout_s);
  // Leaves in `in_flight` what MPI may still use.
  Status ReduceSlices(char* data, int64_t count, DataType dtype, int64_t slice_bytes,
                      double timeout_s, std::list<Slice>* in_flight);

  const std::unique_ptr<MpiCommunicator> communicator_;
  const pid_t process_ = getpid();  // a forked process has the channel, but not MPI

  std::shared_mutex in_mpi_;  // shared by calls into MPI; exclusive in Close()
  bool closed_ = false;       // under in_mpi_

  std::mutex sending_;
  std::list<Outgoing> outgoing_;  // under sending_

  std::mutex receiving_;
  std::list<Arriving> arriving_;  // under receiving_, in the order of arrival

  std::mutex reducing_;  // held by the thread in AllReduce
  // Under reducing_: how many sums there were by messages, and whose members are out of step.
  std::map<SumKey, int64_t> sums_;
  std::set<SumKey> out_of_step_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_SHADOW_MPI_CHANNEL_H_
