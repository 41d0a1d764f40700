#include "transport/mpi_messages.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "core/clock.h"

namespace hvd_p3 {
namespace {

// A wait yields the processor first, which keeps a round trip short, and then sleeps.
constexpr int64_t kYieldNs = 1'000'000;
constexpr std::chrono::microseconds kSleep{200};

// Waits between two looks at the network. False once the time limit has passed.
class Patience {
 public:
  explicit Patience(double timeout_s)
      : start_ns_(NowNanoseconds()), timeout_ns_(static_cast<int64_t>(1e9 * timeout_s)) {}

  bool Wait() const {
    const int64_t waited = NowNanoseconds() - start_ns_;
    if (waited >= timeout_ns_) return false;
    if (waited < kYieldNs) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
    return true;
  }

 private:
  const int64_t start_ns_;
  const int64_t timeout_ns_;
};

Status TooLate(const char* what, int rank, double timeout_s) {
  return {StatusCode::kTransport, "rank " + std::to_string(rank) + " " + what + " within " +
                                      std::to_string(timeout_s) + " s"};
}

}  // namespace

Status MpiMessages::Make(std::unique_ptr<MpiMessages>* made) {
  std::unique_ptr<MpiCommunicator> communicator;
  const Status status = MpiCommunicator::Duplicate(&communicator);
  if (status.ok()) made->reset(new MpiMessages(std::move(communicator)));
  return status;
}

Status MpiMessages::Send(int to, int tag, const std::string& bytes, double timeout_s) {
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return {StatusCode::kInvalidArgument, "a message is longer than MPI can count"};
  }
  Status status = CheckNotFinalized();
  if (!status.ok()) return status;
  auto kept = std::make_unique<std::string>(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  status = FromMpi(MPI_Isend(kept->data(), static_cast<int>(kept->size()), MPI_BYTE, to, tag,
                             communicator_->get(), &request),
                   "MPI_Isend");
  const Patience patience(timeout_s);
  while (status.ok()) {
    status = CheckNotFinalized();
    if (!status.ok()) break;
    int done = 0;
    status = FromMpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (status.ok() && done) return {};
    if (status.ok() && !patience.Wait()) status = TooLate("did not take a message", to, timeout_s);
  }
  kept.release();  // MPI cannot cancel a send, and may read the buffer until the process ends
  return status;
}

Status MpiMessages::Receive(int from, int tag, double timeout_s, std::string* bytes) {
  const Patience patience(timeout_s);
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status envelope;
  while (true) {
    Status status = CheckNotFinalized();
    if (!status.ok()) return status;
    int found = 0;
    status = FromMpi(MPI_Improbe(from, tag, communicator_->get(), &found, &message, &envelope),
                     "MPI_Improbe");
    if (!status.ok()) return status;
    if (found) break;
    if (!patience.Wait()) return TooLate("sent no message", from, timeout_s);
  }
  int count = 0;
  MPI_Get_count(&envelope, MPI_BYTE, &count);
  auto kept = std::make_unique<std::string>(static_cast<size_t>(count), '\0');
  MPI_Request request = MPI_REQUEST_NULL;
  Status status =
      FromMpi(MPI_Imrecv(kept->data(), count, MPI_BYTE, &message, &request), "MPI_Imrecv");
  while (status.ok()) {
    status = CheckNotFinalized();
    if (!status.ok()) break;
    int done = 0;
    status = FromMpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (status.ok() && done) {
      *bytes = std::move(*kept);
      return {};
    }
    if (status.ok() && !patience.Wait()) status = TooLate("sent no message", from, timeout_s);
  }
  kept.release();  // MPI may write to the buffer until the process ends
  return status;
}

}  // namespace hvd_p3
