#include "core/stall_inspector.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/rank_list.h"
#include "core/wire.h"

namespace hvd_p3 {
namespace {

constexpr double kNanoseconds = 1e9;
// A busy engine looks for messages and for tensors that wait this often.
constexpr int64_t kInspectionNs = 20'000'000;
// An idle engine answers within its kIdleInspectionNs.
constexpr int64_t kPatienceNs = 3 * kIdleInspectionNs;
// A rank says so often within the timeout that it lives, and not more often than idle engines look.
constexpr int64_t kSignsOfLife = 8;
// After the timeout: for a sign of life that is due, and so that a rank whose tensor waits says so
// first.
constexpr int64_t kSilenceNs = kPatienceNs + 2 * kIdleInspectionNs;
constexpr size_t kMostAsked = 16;  // tensors in one question, which keeps messages short
constexpr std::chrono::milliseconds kFlush{200};

std::string Quoted(const std::string& name) { return "'" + name + "'"; }

std::string Seconds(double seconds) {
  std::ostringstream text;
  text << (seconds < 10 ? std::round(10 * seconds) / 10 : std::round(seconds)) << " s";
  return text.str();
}

// For how long a tensor has waited for others; a tensor that waits for this rank's own device does
// not.
double WaitedSeconds(const Tensor& tensor, int64_t last_transfer_ns, int64_t now) {
  int64_t since_ns = now;
  if (tensor.state == Tensor::State::kReady) {
    since_ns = tensor.submitted_ns;
  } else if (tensor.state == Tensor::State::kScheduled) {
    since_ns = std::max(tensor.submitted_ns, last_transfer_ns);
  }
  return static_cast<double>(now - since_ns) / kNanoseconds;
}

}  // namespace

StallInspector::StallInspector(const StallOptions& options, ControlChannel* channel,
                               FindGroup find_group)
    : options_(options),
      channel_(channel),
      find_group_(std::move(find_group)),
      enabled_(channel->size() > 1 && (options.warning_s > 0 || options.timeout_s > 0)) {}

Status StallInspector::Inspect(const std::vector<Tensor*>& unfinished, int64_t last_transfer_ns,
                               bool in_step) {
  const int64_t now = NowNanoseconds();
  if (!enabled_ || now < next_look_ns_) return {};
  next_look_ns_ = now + kInspectionNs;
  Status failure;
  ReadMessages(unfinished, &failure);
  if (!failure.ok()) return failure;
  if (in_step) TellNeighbour(now);
  failure = ListenToNeighbour(unfinished, now, in_step);
  if (!failure.ok()) return failure;
  if (!asked_.empty()) {
    if (answers_ + 1 < channel_->size() && now < deadline_ns_) return {};
    return Conclude(last_transfer_ns);
  }
  std::vector<Tensor*> waiting;
  last_question_ = false;
  for (Tensor* tensor : unfinished) {
    const double waited_s = WaitedSeconds(*tensor, last_transfer_ns, now);
    const bool too_long = options_.timeout_s > 0 && waited_s >= options_.timeout_s;
    const bool long_enough =
        options_.warning_s > 0 && waited_s >= options_.warning_s && !tensor->warned;
    if (too_long || long_enough) waiting.push_back(tensor);
    last_question_ |= too_long;
  }
  if (!waiting.empty()) Ask(waiting, last_transfer_ns);
  return {};
}

void StallInspector::TellNeighbour(int64_t now) {
  if (options_.timeout_s <= 0 || now < next_sign_of_life_ns_) return;
  const auto timeout_ns = static_cast<int64_t>(options_.timeout_s * kNanoseconds);
  next_sign_of_life_ns_ = now + std::max(timeout_ns / kSignsOfLife, kIdleInspectionNs);
  Writer writer;
  writer.Number(Kind::kAlive);
  Send((channel_->rank() + 1) % channel_->size(), writer.Take());
}

Status StallInspector::ListenToNeighbour(const std::vector<Tensor*>& unfinished, int64_t now,
                                         bool in_step) {
  if (options_.timeout_s <= 0) return {};
  // A process that was stopped itself has heard nothing meanwhile.
  const int64_t asleep = now - last_look_ns_ - 2 * kIdleInspectionNs;
  if (last_look_ns_ == 0 || !in_step) heard_ns_ = now;
  if (asleep > 0) heard_ns_ = std::min(now, heard_ns_ + asleep);
  last_look_ns_ = now;
  const double silent_s = static_cast<double>(now - heard_ns_) / kNanoseconds;
  // What is being asked ends with a better answer.
  const double most_s = options_.timeout_s + static_cast<double>(kSilenceNs) / kNanoseconds;
  if (!asked_.empty() || silent_s < most_s) return {};
  const int neighbour = (channel_->rank() + channel_->size() - 1) % channel_->size();
  std::string waiting;
  if (!unfinished.empty()) {
    const Tensor& tensor = *unfinished.front();
    waiting = ". Tensor " + Quoted(tensor.group->spec(tensor).name) + " waits";
  }
  return EndWith(RankList({neighbour}) + " has not answered for " + Seconds(silent_s) +
                 ": its process has stopped, or the network to it is down" + waiting);
}

Status StallInspector::EndWith(const std::string& text) {
  const std::string whole = text + ". The wait was ended after " + Seconds(options_.timeout_s) +
                            " (HVD_P3_STALL_TIMEOUT_S)";
  Writer writer;
  writer.Number(Kind::kFailure);
  writer.Text(whole);
  SendToOthers(writer.Take());
  if (options_.failed) options_.failed(whole, /*found_here=*/true);
  return {StatusCode::kStalled, whole};
}

void StallInspector::AskForLastRound() {
  if (!enabled_ || has_asked_for_last_round_) return;
  has_asked_for_last_round_ = true;
  Writer writer;
  writer.Number(Kind::kLastRound);
  SendToOthers(writer.Take());
}

void StallInspector::Ask(const std::vector<Tensor*>& waiting, int64_t last_transfer_ns) {
  const int64_t now = NowNanoseconds();
  Writer writer;
  writer.Number(Kind::kQuestion);
  writer.Number(++question_);
  others_waiting_ = waiting.size() - std::min(waiting.size(), kMostAsked);
  writer.Number<uint64_t>(waiting.size() - others_waiting_);
  for (Tensor* tensor : waiting) {
    tensor->warned = true;
    if (asked_.size() == kMostAsked) continue;
    Asked asked;
    asked.tensor = tensor;
    asked.submitted_ns = tensor->submitted_ns;
    asked.waited_s = WaitedSeconds(*tensor, last_transfer_ns, now);
    asked.by_rank.assign(static_cast<size_t>(channel_->size()), Knowledge::kNone);
    asked.by_rank[static_cast<size_t>(channel_->rank())] = Knowledge::kSubmitted;
    writer.Text(tensor->group->declaration.name);
    writer.Number(tensor->index);
    asked_.push_back(std::move(asked));
  }
  SendToOthers(writer.Take());
  answers_ = 0;
  waits_for_.clear();
  deadline_ns_ = now + kPatienceNs;
}

void StallInspector::ReadMessages(const std::vector<Tensor*>& unfinished, Status* failure) {
  while (true) {
    int rank = 0;
    std::string message;
    bool received = false;
    // An error here is one of the network, which the collectives report.
    if (!channel_->Receive(&rank, &message, &received).ok() || !received) return;
    if ((rank + 1) % channel_->size() == channel_->rank()) heard_ns_ = NowNanoseconds();
    Reader reader(message);
    switch (reader.Number<Kind>()) {
      case Kind::kQuestion:
        Answer(rank, reader.Number<int64_t>(), unfinished, &reader);
        break;
      case Kind::kAnswer:
        ReadAnswer(rank, &reader);
        break;
      case Kind::kFailure:
        *failure = Status(StatusCode::kStalled, reader.Text());
        if (options_.failed) options_.failed(failure->message(), /*found_here=*/false);
        return;
      case Kind::kAlive:
        break;
      case Kind::kLastRound:
        last_round_wanted_ = true;
        break;
    }
  }
}

void StallInspector::Answer(int rank, int64_t question, const std::vector<Tensor*>& unfinished,
                            Reader* reader) {
  Writer writer;
  writer.Number(Kind::kAnswer);
  writer.Number(question);
  const uint64_t count = reader->Number<uint64_t>();
  writer.Number(count);
  for (uint64_t i = 0; i < count && reader->ok(); ++i) {
    const Group* group = find_group_(reader->Text());
    const auto index = static_cast<size_t>(reader->Number<int32_t>());
    Knowledge knowledge = Knowledge::kUnknown;
    if (group != nullptr && index < group->tensors.size()) {
      const bool idle = group->tensors[index].state == Tensor::State::kIdle;
      knowledge = idle ? Knowledge::kNotSubmitted : Knowledge::kSubmitted;
    }
    writer.Number(knowledge);
  }
  const auto oldest = std::min_element(
      unfinished.begin(), unfinished.end(),
      [](const Tensor* a, const Tensor* b) { return a->submitted_ns < b->submitted_ns; });
  const bool waits = oldest != unfinished.end();
  writer.Text(waits ? (*oldest)->group->spec(**oldest).name : std::string());
  Send(rank, writer.Take());
}

void StallInspector::ReadAnswer(int rank, Reader* reader) {
  if (reader->Number<int64_t>() != question_ || asked_.empty()) return;  // came too late
  const uint64_t count = reader->Number<uint64_t>();
  if (count != asked_.size()) return;
  for (Asked& asked : asked_) {
    asked.by_rank[static_cast<size_t>(rank)] = reader->Number<Knowledge>();
  }
  waits_for_[rank] = reader->Text();
  ++answers_;
}

Status StallInspector::Conclude(int64_t last_transfer_ns) {
  // Others may have come while they were asked.
  const int64_t now = NowNanoseconds();
  const double limit_s = last_question_ ? options_.timeout_s : options_.warning_s;
  const auto goes_on = [&](const Asked& asked) {
    return asked.tensor->submitted_ns != asked.submitted_ns ||
           WaitedSeconds(*asked.tensor, last_transfer_ns, now) < limit_s;
  };
  asked_.erase(std::remove_if(asked_.begin(), asked_.end(), goes_on), asked_.end());
  if (asked_.empty()) return {};
  // The tensor that has waited longest, but rather one that is missing somewhere: one that is
  // submitted everywhere may wait for another of its slice.
  const auto order = [](const Asked& asked) {
    return std::make_pair(IsMissing(asked), asked.waited_s);
  };
  const Asked worst =
      *std::max_element(asked_.begin(), asked_.end(),
                        [&order](const Asked& a, const Asked& b) { return order(a) < order(b); });
  const bool has_just_come = !IsMissing(worst) && worst.tensor->state == Tensor::State::kReady;
  // One rank speaks for all that wait for the same: the lowest.
  const bool lower_rank_speaks =
      std::find(worst.by_rank.begin(), worst.by_rank.end(), Knowledge::kSubmitted) !=
      worst.by_rank.begin() + channel_->rank();
  const std::string description = Describe(worst);
  asked_.clear();
  waits_for_.clear();
  if (has_just_come) return {};
  if (last_question_) {
    return EndWith(description);
  }
  if (!lower_rank_speaks && options_.warn) {
    options_.warn(description + (options_.timeout_s > 0
                                     ? ". The wait ends with an error after " +
                                           Seconds(options_.timeout_s) + " (HVD_P3_STALL_TIMEOUT_S)"
                                     : ". The wait has no end; HVD_P3_STALL_TIMEOUT_S sets one"));
  }
  return {};
}

bool StallInspector::IsMissing(const Asked& asked) {
  return std::any_of(asked.by_rank.begin(), asked.by_rank.end(),
                     [](Knowledge each) { return each != Knowledge::kSubmitted; });
}

std::string StallInspector::Describe(const Asked& worst) const {
  std::ostringstream text;
  const Group& group = *worst.tensor->group;
  text << "tensor " << Quoted(group.spec(*worst.tensor).name) << " of "
       << Quoted(group.declaration.name);
  const size_t more = asked_.size() - 1 + others_waiting_;
  if (more > 0) text << " and " << more << (more > 1 ? " others have" : " other have");
  text << (more > 0 ? " waited " : " has waited ") << Seconds(worst.waited_s);
  std::map<std::string, std::vector<int>> ranks_by_reason;
  for (int rank = 0; rank < channel_->size(); ++rank) {
    const std::string reason = Explain(rank, worst.by_rank[static_cast<size_t>(rank)]);
    if (!reason.empty()) ranks_by_reason[reason].push_back(rank);
  }
  if (ranks_by_reason.empty()) {
    text << ". All ranks have submitted it and answer: the network between them is stuck or slow, "
            "or "
            "a tensor that shares its slice is missing";
  }
  for (const auto& [reason, ranks] : ranks_by_reason) {
    text << ". Missing: " << RankList(ranks) << ", " << reason;
  }
  return text.str();
}

std::string StallInspector::Explain(int rank, Knowledge knowledge) const {
  switch (knowledge) {
    case Knowledge::kNone:
      return "which does not answer: its process has stopped, or the network to it is down";
    case Knowledge::kUnknown:
      return "where no such tensor exists: it has not come to its first step yet, or has another "
             "model, program or arguments of DistributedOptimizer, such as process_set";
    case Knowledge::kNotSubmitted: {
      const auto waits_for = waits_for_.find(rank);
      if (waits_for != waits_for_.end() && !waits_for->second.empty()) {
        return "where it is not submitted and tensor " + Quoted(waits_for->second) +
               " waits: give all ranks the same order of steps";
      }
      return "where it is not submitted: it computes for longer, has run out of batches, or waits "
             "for something else; give all ranks the same number of steps";
    }
    case Knowledge::kSubmitted:
      return "";
  }
  return "";
}

void StallInspector::Send(int rank, std::string message) {
  // A rank that cannot be reached does not answer, which is what the user is told.
  static_cast<void>(channel_->Send(rank, std::move(message)));
}

void StallInspector::SendToOthers(const std::string& message) {
  for (int rank = 0; rank < channel_->size(); ++rank) {
    if (rank != channel_->rank()) Send(rank, message);
  }
}

void StallInspector::Flush() {
  const auto end = std::chrono::steady_clock::now() + kFlush;
  while (channel_->sending() && std::chrono::steady_clock::now() < end) {
    if (!channel_->Progress().ok()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace hvd_p3
