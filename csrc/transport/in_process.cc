#include "transport/in_process.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/arithmetic.h"
#include "core/clock.h"
#include "transport/host_staging.h"

namespace hvd_p3 {
namespace {

// One collective of the world: the ranks' contributions arrive in any order and thread, and the
// last one combines them.
struct Meeting {
  std::string signature;  // what the first rank asked for; all others must ask for the same
  std::vector<std::string> contributions;
  int arrived = 0;
  int taken = 0;
  bool mismatch = false;
  std::string result;
};

}  // namespace

struct InProcessWorld::State {
  explicit State(InProcessOptions given) : options(std::move(given)) {}

  using Combine = std::function<std::string(const std::vector<std::string>&)>;

  // Adds a rank's part to collective number `sequence` of `kind`; the last rank combines.
  void Join(const std::string& kind, int64_t sequence, int rank, std::string signature,
            std::string part, const Combine& combine) {
    const std::lock_guard<std::mutex> lock(mutex);
    Meeting& meeting = meetings[{kind, sequence}];
    if (meeting.arrived == 0) {
      meeting.signature = signature;
      meeting.contributions.resize(static_cast<size_t>(options.size));
    }
    if (meeting.signature != signature) meeting.mismatch = true;
    meeting.contributions[static_cast<size_t>(rank)] = std::move(part);
    if (++meeting.arrived < options.size || meeting.mismatch) return;
    meeting.result = combine(meeting.contributions);
    meeting.contributions.clear();
  }

  // True once all ranks have joined; each rank takes the result once.
  Status Take(const std::string& kind, int64_t sequence, bool* done, std::string* result) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = meetings.find({kind, sequence});
    Meeting& meeting = found->second;
    if (meeting.mismatch) {
      return {StatusCode::kTransport, "ranks joined different collectives as number " +
                                          std::to_string(sequence) + " of " + kind};
    }
    *done = meeting.arrived == options.size;
    if (!*done) return {};
    *result = meeting.result;
    if (++meeting.taken == options.size) meetings.erase(found);
    return {};
  }

  const InProcessOptions options;
  std::mutex mutex;
  std::map<std::pair<std::string, int64_t>, Meeting> meetings;
  std::map<int, std::deque<std::pair<int, std::string>>> mailboxes;  // of a rank: (from, message)
};

namespace {

using State = InProcessWorld::State;

class InProcessCollective : public Collective {
 public:
  using Deliver = std::function<void(const std::string& result)>;
  using Held = std::function<bool()>;

  InProcessCollective(std::shared_ptr<State> state, std::string kind, int64_t sequence,
                      int64_t delay_us, Held held, Deliver deliver)
      : state_(std::move(state)),
        kind_(std::move(kind)),
        sequence_(sequence),
        delay_ns_(delay_us * 1000),
        held_(std::move(held)),
        deliver_(std::move(deliver)) {}

  Status Test(bool* done) override {
    *done = false;
    if (!taken_) {
      const Status status = state_->Take(kind_, sequence_, &taken_, &result_);
      if (!status.ok() || !taken_) return status;
      taken_ns_ = NowNanoseconds();
    }
    if (NowNanoseconds() < taken_ns_ + delay_ns_) return {};
    if (held_ && held_()) return {};
    deliver_(result_);
    *done = true;
    return {};
  }

 private:
  const std::shared_ptr<State> state_;
  const std::string kind_;
  const int64_t sequence_;
  const int64_t delay_ns_;
  const Held held_;
  const Deliver deliver_;
  bool taken_ = false;
  int64_t taken_ns_ = 0;
  std::string result_;
};

class InProcessTransport : public Transport {
 public:
  InProcessTransport(std::shared_ptr<State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  bool sums_independent_of_slices() const override { return true; }  // added in order of ranks

  Status Start(const SliceReduction& reduction, std::unique_ptr<Collective>* collective) override {
    const int64_t sequence = sequence_++;
    const InProcessOptions& options = state_->options;
    if (options.slice_fails && options.slice_fails(sequence, rank_)) {
      return {StatusCode::kTransport, "injected failure of collective " + std::to_string(sequence)};
    }
    auto staging = std::make_shared<HostStaging>(reduction);
    const size_t bytes = static_cast<size_t>(staging->bytes());
    const DataType dtype = staging->dtype();
    const int64_t count = staging->count();
    state_->Join("slice", sequence, rank_, DataTypeName(dtype) + std::to_string(count),
                 std::string(static_cast<const char*>(staging->buffer()), bytes),
                 [dtype, count](const std::vector<std::string>& parts) {
                   std::string total = parts.front();
                   for (size_t i = 1; i < parts.size(); ++i) {
                     AddInto(dtype, parts[i].data(), total.data(), count);
                   }
                   return total;
                 });
    const int64_t delay_us = options.slice_delay_us ? options.slice_delay_us(sequence, rank_) : 0;
    InProcessCollective::Held held;
    if (options.slice_held) held = [&options, count] { return options.slice_held(count); };
    *collective = std::make_unique<InProcessCollective>(
        state_, "slice", sequence, delay_us, held, [staging](const std::string& result) {
          std::memcpy(staging->buffer(), result.data(), result.size());
          staging->Finish();
        });
    return {};
  }

  Status Progress() override { return {}; }
  bool Abort() override { return false; }

 private:
  const std::shared_ptr<State> state_;
  const int rank_;
  int64_t sequence_ = 0;
};

class InProcessControlChannel : public ControlChannel {
 public:
  InProcessControlChannel(std::shared_ptr<State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return state_->options.size; }

  Status StartAnd(std::vector<uint64_t>* words, std::unique_ptr<Collective>* collective) override {
    const size_t bytes = words->size() * sizeof(uint64_t);
    const int64_t sequence = sequence_++;
    state_->Join("control", sequence, rank_, "and" + std::to_string(bytes),
                 std::string(reinterpret_cast<const char*>(words->data()), bytes),
                 [](const std::vector<std::string>& parts) {
                   std::string total = parts.front();
                   for (const std::string& part : parts) {
                     for (size_t i = 0; i < total.size(); ++i) {
                       total[i] = static_cast<char>(total[i] & part[i]);
                     }
                   }
                   return total;
                 });
    *collective = std::make_unique<InProcessCollective>(
        state_, "control", sequence, 0, nullptr, [words](const std::string& result) {
          std::memcpy(words->data(), result.data(), result.size());
        });
    return {};
  }

  Status StartAllGather(const std::string& mine, std::vector<std::string>* all,
                        std::unique_ptr<Collective>* collective) override {
    const int64_t sequence = sequence_++;
    // The combined result is the concatenation of parts with their lengths.
    state_->Join("control", sequence, rank_, "gather", mine,
                 [](const std::vector<std::string>& parts) {
                   std::string joined;
                   for (const std::string& part : parts) {
                     const uint64_t length = part.size();
                     joined.append(reinterpret_cast<const char*>(&length), sizeof(length));
                     joined += part;
                   }
                   return joined;
                 });
    *collective = std::make_unique<InProcessCollective>(
        state_, "control", sequence, 0, nullptr, [all](const std::string& joined) {
          for (size_t position = 0; position < joined.size();) {
            uint64_t length = 0;
            std::memcpy(&length, joined.data() + position, sizeof(length));
            position += sizeof(length);
            all->push_back(joined.substr(position, length));
            position += length;
          }
        });
    return {};
  }

  Status Send(int rank, std::string message) override {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->mailboxes[rank].emplace_back(rank_, std::move(message));
    return {};
  }

  bool sending() const override { return false; }

  Status Receive(int* rank, std::string* message, bool* received) override {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    auto& mailbox = state_->mailboxes[rank_];
    *received = !mailbox.empty();
    if (!*received) return {};
    std::tie(*rank, *message) = std::move(mailbox.front());
    mailbox.pop_front();
    return {};
  }

  Status Progress() override { return {}; }
  bool Abort() override { return false; }

 private:
  const std::shared_ptr<State> state_;
  const int rank_;
  int64_t sequence_ = 0;
};

}  // namespace

InProcessWorld::InProcessWorld(InProcessOptions options)
    : state_(std::make_shared<State>(std::move(options))) {}

InProcessWorld::~InProcessWorld() = default;

std::unique_ptr<ControlChannel> InProcessWorld::MakeControlChannel(int rank) {
  return std::make_unique<InProcessControlChannel>(state_, rank);
}

std::unique_ptr<Transport> InProcessWorld::MakeTransport(int rank) {
  return std::make_unique<InProcessTransport>(state_, rank);
}

}  // namespace hvd_p3
