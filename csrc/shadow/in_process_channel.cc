#include "shadow/in_process_channel.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace hvd_p3 {
namespace {

// The members of sums, and their generation.
using SumKey = std::pair<std::vector<int>, int64_t>;

// The sum of one all-reduce, which ends when all members have left. What those have given who do
// not wait any more stays, as in MPI.
struct Sum {
  std::map<int, std::vector<char>> contributions;  // by rank, until the sum is made
  std::vector<char> total;
  bool made = false;
  int left = 0;
};

// What the ranks share. One mutex for all, since these messages are few or of tests.
struct World {
  explicit World(int size) : inboxes(static_cast<size_t>(size)), closed(inboxes.size(), false) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<ChannelMessage>> inboxes;  // by receiving rank
  std::vector<bool> closed;
  std::map<SumKey, Sum> sums;
  std::set<std::pair<int, SumKey>> out_of_step;  // with the rank that is
};

template <typename T>
void Add(const std::vector<char>& values, std::vector<char>* total) {
  const T* const from = reinterpret_cast<const T*>(values.data());
  T* const to = reinterpret_cast<T*>(total->data());
  for (size_t i = 0; i < total->size() / sizeof(T); ++i) to[i] += from[i];
}

class InProcessChannel : public Channel {
 public:
  InProcessChannel(const std::string& name, std::shared_ptr<World> world, int rank)
      : Channel(name), world_(std::move(world)), rank_(rank) {}
  ~InProcessChannel() override { Close(); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_->inboxes.size()); }

  Status Send(int to, int tag, const void* data, size_t bytes) override {
    const Status status = CheckRankAndTag(to, tag, /*any=*/false);
    if (!status.ok()) return status;
    const char* const begin = static_cast<const char*>(data);
    ChannelMessage message{rank_, tag, std::vector<char>(begin, begin + bytes)};
    const std::lock_guard<std::mutex> lock(world_->mutex);
    if (IsClosed()) return Closed();
    world_->inboxes[static_cast<size_t>(to)].push_back(std::move(message));
    world_->changed.notify_all();
    return {};
  }

  Status Flush(double) override {
    const std::lock_guard<std::mutex> lock(world_->mutex);
    return IsClosed() ? Closed() : Status();
  }

  Status Receive(int from, int tag, double timeout_s, ChannelMessage* message) override {
    const Status status = CheckRankAndTag(from, tag, /*any=*/true);
    if (!status.ok()) return status;
    std::unique_lock<std::mutex> lock(world_->mutex);
    std::deque<ChannelMessage>& inbox = world_->inboxes[static_cast<size_t>(rank_)];
    const auto find = [&] {
      return std::find_if(inbox.begin(), inbox.end(), [&](const ChannelMessage& each) {
        return (from == kAny || from == each.from) && (tag == kAny || tag == each.tag);
      });
    };
    const bool in_time =
        WaitUntil(&lock, timeout_s, [&] { return IsClosed() || find() != inbox.end(); });
    if (IsClosed()) return Closed();
    if (!in_time) {
      return TimedOut(from == kAny ? "no rank sent a message"
                                   : "rank " + std::to_string(from) + " sent no message",
                      timeout_s);
    }
    const auto found = find();
    *message = std::move(*found);
    inbox.erase(found);
    return {};
  }

  Status AllReduce(void* data, int64_t count, DataType dtype, const std::vector<int>& members,
                   int64_t generation, int64_t slice_bytes, double timeout_s) override {
    const Status status = CheckAllReduce(count, dtype, members, generation, slice_bytes);
    if (!status.ok()) return status;
    std::unique_lock<std::mutex> lock(world_->mutex);
    const SumKey key(members, generation);
    if (world_->out_of_step.count({rank_, key}) > 0) return GivenUp(members);
    Sum& sum = world_->sums[key];
    // A rank may be here for the next sum while others have not left the last one.
    bool in_time = WaitUntil(&lock, timeout_s, [&] { return IsClosed() || !sum.made; });
    if (IsClosed()) return Closed();
    const bool contributes = in_time;
    if (contributes) {
      char* const bytes = static_cast<char*>(data);
      sum.contributions[rank_].assign(bytes, bytes + count * ElementBytes(dtype));
      if (sum.contributions.size() == members.size()) MakeSum(dtype, &sum);
      in_time = WaitUntil(&lock, timeout_s, [&] { return IsClosed() || sum.made; });
    }
    Status result;
    if (IsClosed()) {
      result = Closed();
    } else if (!in_time) {
      result = TimedOut("all_reduce did not hear from all ranks", timeout_s);
    } else if (sum.total.size() != static_cast<size_t>(count * ElementBytes(dtype))) {
      result = {StatusCode::kMismatch,
                "ranks give all_reduce on channel '" + name() + "' different lengths"};
    } else {
      std::memcpy(data, sum.total.data(), sum.total.size());
    }
    if (!result.ok()) world_->out_of_step.insert({rank_, key});
    if (contributes && ++sum.left == static_cast<int>(members.size())) {
      sum = Sum();
      world_->changed.notify_all();
    }
    return result;
  }

  void Close() override {
    const std::lock_guard<std::mutex> lock(world_->mutex);
    world_->closed[static_cast<size_t>(rank_)] = true;
    world_->changed.notify_all();
  }

 private:
  bool IsClosed() const { return world_->closed[static_cast<size_t>(rank_)]; }

  template <typename Condition>
  bool WaitUntil(std::unique_lock<std::mutex>* lock, double timeout_s, const Condition& condition) {
    if (timeout_s < 0) {
      world_->changed.wait(*lock, condition);
      return true;
    }
    return world_->changed.wait_for(*lock, std::chrono::duration<double>(timeout_s), condition);
  }

  void MakeSum(DataType dtype, Sum* sum) {
    for (auto& [rank, values] : sum->contributions) {
      if (sum->total.empty()) {
        sum->total = std::move(values);
      } else if (values.size() != sum->total.size()) {
        sum->total.clear();
        break;
      } else if (dtype == DataType::kFloat32) {
        Add<float>(values, &sum->total);
      } else {
        Add<double>(values, &sum->total);
      }
    }
    sum->contributions.clear();
    sum->made = true;
    world_->changed.notify_all();
  }

  const std::shared_ptr<World> world_;
  const int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Channel>> MakeInProcessChannels(const std::string& name, int size) {
  const auto world = std::make_shared<World>(size);
  std::vector<std::shared_ptr<Channel>> channels;
  for (int rank = 0; rank < size; ++rank) {
    channels.push_back(std::make_shared<InProcessChannel>(name, world, rank));
  }
  return channels;
}

}  // namespace hvd_p3
