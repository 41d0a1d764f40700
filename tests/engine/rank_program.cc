#include "rank_program.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "core/arithmetic.h"
#include "core/clock.h"
#include "core/element.h"

namespace hvd_p3 {
namespace {

constexpr double kPatienceS = 30.0;  // a submission that takes longer counts as hanging

// After an injected failure the other ranks wait in vain; a program's launcher would end them.
constexpr double kPatienceWithFailureS = 0.5;

constexpr char kGarbage = 0x55;  // in the memory of a device before it is written

bool Has(const std::map<int, std::set<int>>& tensors_of_ranks, int rank, int tensor) {
  const auto found = tensors_of_ranks.find(rank);
  return found != tensors_of_ranks.end() && found->second.count(tensor) > 0;
}

// An event that is reached at a point in time.
class TimedEvent : public Event {
 public:
  explicit TimedEvent(int64_t delay_us) : time_ns_(NowNanoseconds() + delay_us * 1000) {}
  Status Test(bool* reached) override {
    *reached = NowNanoseconds() >= time_ns_;
    return {};
  }

 private:
  const int64_t time_ns_;
};

// What a rank contributes: small integers, whose sums are exact in every element type.
int64_t Contribution(int rank, int step, int tensor, int64_t element) {
  return (element + 3 * tensor + step) % 5 + (rank % 4);
}

void Store(DataType dtype, int64_t value, char* target) {
  const auto put = [target](auto typed) { std::memcpy(target, &typed, sizeof(typed)); };
  switch (dtype) {
    case DataType::kFloat16:
      return put(FloatToFloat16(static_cast<float>(value)));
    case DataType::kBFloat16:
      return put(FloatToBFloat16(static_cast<float>(value)));
    case DataType::kFloat32:
      return put(static_cast<float>(value));
    case DataType::kFloat64:
      return put(static_cast<double>(value));
    case DataType::kInt32:
      return put(static_cast<int32_t>(value));
    case DataType::kInt64:
      return put(value);
  }
}

std::vector<char> Filled(const TensorSpec& spec, int rank, int step, int tensor) {
  std::vector<char> bytes(static_cast<size_t>(spec.bytes()));
  const int64_t size = ElementBytes(spec.dtype);
  for (int64_t i = 0; i < spec.num_elements(); ++i) {
    Store(spec.dtype, Contribution(rank, step, tensor, i), bytes.data() + i * size);
  }
  return bytes;
}

// The reduction done the plain way: scale, add rank by rank, scale.
std::vector<char> Expected(const TensorSpec& spec, int ranks, int step, int tensor) {
  const int64_t count = spec.num_elements();
  std::vector<char> total(static_cast<size_t>(spec.bytes()), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<char> part = Filled(spec, rank, step, tensor);
    Scale(spec.dtype, part.data(), part.data(), count, spec.prescale);
    AddInto(spec.dtype, part.data(), total.data(), count);
  }
  const double postscale = spec.op == ReduceOp::kAverage ? spec.postscale / ranks : spec.postscale;
  Scale(spec.dtype, total.data(), total.data(), count, postscale);
  return total;
}

const char* CodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kMismatch:
      return "mismatch";
    case StatusCode::kTransport:
      return "transport";
    case StatusCode::kTimedOut:
      return "timed_out";
    case StatusCode::kStalled:
      return "stalled";
    case StatusCode::kOutOfMemory:
      return "out_of_memory";
    case StatusCode::kShutdown:
      return "shutdown";
  }
  return "";
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

RankProgram::RankProgram(const Scenario& scenario, int rank, Engine* engine)
    : scenario_(scenario), rank_(rank), engine_(engine), specs_(scenario.tensors) {
  const auto other_shape = scenario.shapes.find(rank);
  if (other_shape != scenario.shapes.end()) {
    specs_[static_cast<size_t>(other_shape->second.first)].shape = other_shape->second.second;
  }
  latest_.resize(specs_.size());
  if (UsesDevices(scenario)) {
    compute_stream_ = std::make_unique<SimulatedStream>(
        scenario.most_event_delay_us, scenario.seed + 7u * static_cast<uint64_t>(rank));
  }
}

void RankProgram::Run() {
  const auto arguments = scenario_.arguments.find(rank_);
  engine_->DeclareGroup("group",
                        scenario_.announcing.count(rank_) > 0 ? std::vector<TensorSpec>() : specs_,
                        &handles_, arguments == scenario_.arguments.end() ? "" : arguments->second);
  for (int step = 0; step < scenario_.steps; ++step) {
    if (rank_ == scenario_.shutdown_rank && step == scenario_.shutdown_step) {
      engine_->Shutdown(scenario_.shutdown_timeout_s);
    }
    if (step == scenario_.timeline_first_step) engine_->timeline()->Start();
    if (step == scenario_.timeline_end_step) engine_->timeline()->Stop();
    const auto submissions = scenario_.submissions.find({rank_, step});
    if (submissions == scenario_.submissions.end()) continue;
    for (const auto& [tensor, delay_us] : submissions->second) {
      if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      Reduction* previous = latest_[static_cast<size_t>(tensor)];
      if (previous != nullptr && !MayBeSubmittedAgain(previous)) return;
      SubmitTensor(tensor, step);
    }
  }
  if (scenario_.shutdown_at_end) engine_->Shutdown(scenario_.shutdown_timeout_s);
}

void RankProgram::SubmitTensor(int tensor, int step) {
  const TensorSpec& spec = specs_[static_cast<size_t>(tensor)];
  auto reduction = std::make_unique<Reduction>();
  reduction->tensor = tensor;
  reduction->step = step;
  reduction->in_place = Has(scenario_.in_place, rank_, tensor);
  reduction->input() = Filled(spec, rank_, step, tensor);
  reduction->output.resize(reduction->input().size());
  Submission submission;
  submission.input = reduction->input().data();
  submission.output = reduction->output.data();
  reduction->on_device = Has(scenario_.on_device, rank_, tensor);
  if (reduction->on_device) {
    PutOnDevice(reduction.get(), &submission);
  } else if (scenario_.most_event_delay_us > 0) {
    const uint64_t mixed =
        (scenario_.seed + 977u * static_cast<uint64_t>(tensor + 31 * rank_)) * 0x9e3779b97f4a7c15u;
    const uint64_t most = static_cast<uint64_t>(scenario_.most_event_delay_us);
    submission.ready =
        std::make_shared<TimedEvent>(static_cast<int64_t>((mixed >> 32) % (most + 1)));
  }
  submission.done = [submitted = reduction.get()](const Status& status) {
    submitted->available.Complete(status);
    submitted->ticket.Complete(status);
  };
  Reduction*& latest = latest_[static_cast<size_t>(tensor)];
  reduction->overlaps_previous = latest != nullptr && latest->ticket.completions() == 0;
  latest = reduction.get();
  reductions_.push_back(std::move(reduction));
  engine_->Submit(handles_[static_cast<size_t>(tensor)], std::move(submission));
}

// The input is written by the rank's stream, and the output read by it, while the engine's streams
// go on.
void RankProgram::PutOnDevice(Reduction* reduction, Submission* submission) {
  const auto index = scenario_.device_index.find(reduction->tensor);
  submission->device.index = index == scenario_.device_index.end() ? 0 : index->second;
  std::vector<char> value =
      std::exchange(reduction->input(), std::vector<char>(reduction->output.size(), kGarbage));
  compute_stream_->Enqueue([reduction, value = std::move(value)] {
    std::copy(value.begin(), value.end(), reduction->input().begin());
  });
  submission->input = reduction->input().data();
  submission->output = reduction->output.data();
  submission->ready = compute_stream_->Record();
  submission->enqueued = [this, reduction](const std::shared_ptr<StreamEvent>& event) {
    reduction->enqueued = true;
    event->BlockStream(compute_stream_.get());
    compute_stream_->Enqueue([reduction] { reduction->used = reduction->output; });
    reduction->available.Complete(Status());
  };
}

bool RankProgram::MayBeSubmittedAgain(Reduction* reduction) {
  if (scenario_.fail_rank < 0 && reduction->on_device) {
    Status status;
    return reduction->available.Wait(kPatienceS, &status);
  }
  WaitFor(reduction);
  return scenario_.fail_rank < 0 || (reduction->completed && reduction->status.ok());
}

void RankProgram::WaitFor(Reduction* reduction) {
  const double patience_s = scenario_.fail_rank >= 0 ? kPatienceWithFailureS : kPatienceS;
  reduction->completed = reduction->ticket.Wait(patience_s, &reduction->status);
}

void RankProgram::Finish() {
  for (const auto& reduction : reductions_) {
    if (!reduction->completed) WaitFor(reduction.get());
  }
}

void RankProgram::Compare() {
  if (compute_stream_ != nullptr) compute_stream_->Synchronize();
  for (const auto& reduction : reductions_) {
    if (!reduction->completed || !reduction->status.ok()) continue;
    const TensorSpec& spec = specs_[static_cast<size_t>(reduction->tensor)];
    const std::vector<char> expected =
        Expected(spec, scenario_.ranks, reduction->step, reduction->tensor);
    reduction->correct =
        reduction->output == expected && (!reduction->on_device || reduction->used == expected);
  }
}

void RankProgram::Report(std::ostream& output) {
  output << "{\"reductions\":[";
  const char* separator = "";
  for (const auto& reduction : reductions_) {
    output << separator << "{\"tensor\":" << reduction->tensor << ",\"step\":" << reduction->step
           << ",\"completions\":" << reduction->ticket.completions()
           << ",\"status\":" << Quoted(CodeName(reduction->status.code()))
           << ",\"message\":" << Quoted(reduction->status.message())
           << ",\"enqueued\":" << (reduction->enqueued ? "true" : "false")
           << ",\"overlaps_previous\":" << (reduction->overlaps_previous ? "true" : "false")
           << ",\"correct\":" << (reduction->correct ? "true" : "false") << "}";
    separator = ",";
  }
  const StatisticsSnapshot statistics = engine_->statistics()->Snapshot();
  output << "],\"held_bytes\":" << statistics.held_bytes << ",\"slices\":" << statistics.slices
         << ",\"trace\":[";
  separator = "";
  for (const TraceEvent& event : engine_->TakeTrace()) {
    output << separator << "{\"kind\":" << Quoted(TraceKindName(event.kind))
           << ",\"tensor\":" << Quoted(event.tensor) << ",\"priority\":" << event.priority
           << ",\"offset\":" << event.offset << ",\"bytes\":" << event.bytes
           << ",\"bytes_in_flight\":" << event.bytes_in_flight << "}";
    separator = ",";
  }
  const Trace::Taken timeline = engine_->timeline()->Take();
  output << "],\"timeline_dropped\":" << timeline.dropped << ",\"timeline\":[";
  separator = "";
  for (const TraceRecord& record : timeline.records) {
    output << separator << "{\"kind\":" << Quoted(TraceKindName(record.kind))
           << ",\"tensor\":" << record.tensor << ",\"slice\":" << record.slice
           << ",\"bytes\":" << record.bytes << ",\"time_ns\":" << record.time_ns << "}";
    separator = ",";
  }
  output << "]}";
}

}  // namespace hvd_p3
