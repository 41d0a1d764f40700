#include "simulated_communicator.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/arithmetic.h"
#include "simulated_device.h"

namespace hvd_p3 {
namespace {

// One operation: the streams of all ranks meet in it, and the last one computes the sum.
struct Meeting {
  std::string signature;
  std::vector<std::string> parts;  // by rank
  int arrived = 0;
  int left = 0;
  bool complete = false;
  std::string sum;
};

int64_t CountOf(const std::vector<Segment>& segments) {
  int64_t count = 0;
  for (const Segment& segment : segments) count += segment.count;
  return count;
}

}  // namespace

struct SimulatedNetwork::State {
  explicit State(SimulatedNetworkOptions given) : options(std::move(given)) {}

  // Blocks the calling stream until all ranks have come, or `aborted`. Returns whether `*sum` is
  // the result.
  bool Meet(int64_t sequence, int rank, const std::string& signature, std::string part,
            DataType dtype, const std::atomic<bool>& aborted, std::string* sum) {
    std::unique_lock<std::mutex> lock(mutex);
    Meeting& meeting = meetings[sequence];
    if (meeting.arrived == 0) {
      meeting.signature = signature;
      meeting.parts.resize(static_cast<size_t>(options.size));
    }
    if (meeting.signature != signature) mismatch = true;
    meeting.parts[static_cast<size_t>(rank)] = std::move(part);
    if (++meeting.arrived == options.size && !mismatch) {
      meeting.sum = meeting.parts.front();
      const auto count = static_cast<int64_t>(meeting.sum.size()) / ElementBytes(dtype);
      for (size_t i = 1; i < meeting.parts.size(); ++i) {
        AddInto(dtype, meeting.parts[i].data(), meeting.sum.data(), count);
      }
      meeting.complete = true;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return meeting.complete || aborted.load(); });
    if (!meeting.complete) return false;
    *sum = meeting.sum;
    if (++meeting.left == options.size) meetings.erase(sequence);
    return true;
  }

  const SimulatedNetworkOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Meeting> meetings;
  bool mismatch = false;
};

namespace {

class SimulatedCommunicator : public DeviceCommunicator {
 public:
  SimulatedCommunicator(std::shared_ptr<SimulatedNetwork::State> state, int rank)
      : state_(std::move(state)),
        rank_(rank),
        random_(state_->options.seed + static_cast<uint64_t>(rank)),
        stream_(state_->options.most_delay_us, random_()) {}

  int size() const override { return state_->options.size; }

  Status Open(const Device&) override {
    BecomeBusy();
    return {};
  }

  Status Poll(bool* ready) override {
    *ready = false;
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      if (state_->mismatch) {
        return {StatusCode::kTransport, "ranks enqueued different operations"};
      }
    }
    if (failing_ >= 0 && --polls_until_failure_ < 0) {
      return {StatusCode::kTransport, "injected failure of collective " + std::to_string(failing_)};
    }
    if (polls_until_ready_ > 0) {
      if (--polls_until_ready_ > 0) return {};
      // Only now is it enqueued, as the library would.
      if (pending_) stream_.Enqueue(std::move(pending_));
      pending_ = nullptr;
    }
    *ready = true;
    return {};
  }

  Status Scale(const std::vector<Segment>& segments, DataType dtype, double factor) override {
    stream_.Enqueue([segments, dtype, factor] {
      for (const Segment& segment : segments) {
        hvd_p3::Scale(dtype, segment.input, segment.output, segment.count, factor);
      }
    });
    return {};
  }

  Status AllReduce(const std::vector<Segment>& segments, DataType dtype) override {
    const int64_t sequence = sequence_++;
    if (state_->options.fails && state_->options.fails(sequence, rank_)) failing_ = sequence;
    pending_ = [this, segments, dtype, sequence] { Reduce(segments, dtype, sequence); };
    BecomeBusy();
    return {};
  }

  Status Record(std::shared_ptr<StreamEvent>* event) override {
    *event = stream_.Record();
    return {};
  }

  bool Abort() override {
    stream_.Abort();
    aborted_ = true;
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->changed.notify_all();
    return false;
  }

 private:
  void BecomeBusy() { polls_until_ready_ = 1 + static_cast<int>(random_() % 3); }

  // On the stream.
  void Reduce(const std::vector<Segment>& segments, DataType dtype, int64_t sequence) {
    if (sequence == failing_) return WaitForAbort();
    std::string part;
    for (const Segment& segment : segments) {
      part.append(static_cast<const char*>(segment.input),
                  static_cast<size_t>(segment.count * ElementBytes(dtype)));
    }
    const std::string signature = DataTypeName(dtype) + std::to_string(CountOf(segments));
    std::string sum;
    if (!state_->Meet(sequence, rank_, signature, std::move(part), dtype, aborted_, &sum)) return;
    const char* position = sum.data();
    for (const Segment& segment : segments) {
      const auto bytes = static_cast<size_t>(segment.count * ElementBytes(dtype));
      std::memcpy(segment.output, position, bytes);
      position += bytes;
    }
  }

  void WaitForAbort() {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->changed.wait(lock, [this] { return aborted_.load(); });
  }

  const std::shared_ptr<SimulatedNetwork::State> state_;
  const int rank_;
  std::mt19937_64 random_;
  int polls_until_ready_ = 0;
  std::function<void()> pending_;  // given to the library and not enqueued yet
  int64_t sequence_ = 0;
  std::atomic<int64_t> failing_{-1};  // this operation never completes
  int polls_until_failure_ = 8;
  std::atomic<bool> aborted_{false};
  SimulatedStream stream_;  // last: ends before what its work uses
};

}  // namespace

SimulatedNetwork::SimulatedNetwork(SimulatedNetworkOptions options)
    : state_(std::make_shared<State>(std::move(options))) {}

SimulatedNetwork::~SimulatedNetwork() = default;

std::unique_ptr<DeviceCommunicator> SimulatedNetwork::MakeCommunicator(int rank) {
  return std::make_unique<SimulatedCommunicator>(state_, rank);
}

}  // namespace hvd_p3
