#include "core/engine.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <utility>

#include "core/clock.h"
#include "core/rank_list.h"

namespace hvd_p3 {
namespace {

// A rank whose state has not changed since the last round joins the next one after a delay that
// doubles from the first to the second of these, so that ranks with disjoint ready sets do not
// spin.
constexpr int64_t kFirstRoundDelayNs = 100'000;
constexpr int64_t kLastRoundDelayNs = 1'000'000;

// A look at a device's event costs about a microsecond. TensorFlow computes on one stream, so
// events are reached about in the order of submission, and a look ends after so many that are not.
constexpr int kMostUnreachedEvents = 8;

// How long a rank with nothing unfinished looks after a round that it has joined.
constexpr int64_t kLingerNs = 10'000'000;

// How long a rank that gives up stays for the round that tells the others. Those that wait for a
// tensor take part in rounds all the time; idle ones are asked to, and look once in
// kIdleInspectionNs.
constexpr std::chrono::milliseconds kLastCall{200};

// How long a rank that ends waits at most for the others to have seen the last round.
constexpr int64_t kFarewellNs = 2'000'000'000;

// The kernel may delay a timed sleep by this much; its default of 50 us exceeds our shortest sleep.
constexpr unsigned long kTimerSlackNs = 1'000;

constexpr char kWasShutDown[] = "hvd_p3 was shut down on this rank";

// Of an engine's end: what became of one tensor. What is said of a stall, and of ranks that
// disagree, names a tensor already: the one to look at.
Status OfTensor(const std::string& name, const Status& end) {
  if (end.code() == StatusCode::kStalled || end.code() == StatusCode::kMismatch) return end;
  return {end.code(), "tensor '" + name + "' was not reduced: " + end.message()};
}

// The next push_back does not throw.
template <typename T>
void MakeRoomForOne(std::vector<T>* list) {
  if (list->size() == list->capacity()) list->reserve(2 * list->size() + 1);
}

// The reductions of a slice: one for each memory that its members are in, in the order of members.
// Ranks agree on which members are in host memory and which in a device's, see Memory.
std::vector<SliceReduction> ReductionsOf(const Group& group, const Slice& slice, int ranks) {
  std::vector<SliceReduction> reductions;
  for (const SliceMember& member : slice.members) {
    if (member.count == 0) continue;
    const Tensor& tensor = group.tensors[static_cast<size_t>(member.tensor)];
    const TensorSpec& spec = group.spec(tensor);
    const Submission& submission = tensor.submission;
    auto reduction = std::find_if(reductions.begin(), reductions.end(),
                                  [&submission](const SliceReduction& other) {
                                    return other.device.index == submission.device.index;
                                  });
    if (reduction == reductions.end()) {
      const double average = spec.op == ReduceOp::kAverage ? ranks : 1;
      reduction = reductions.insert(
          reduction, {{}, spec.dtype, spec.prescale, spec.postscale / average, submission.device});
    }
    const int64_t offset_bytes = member.offset * ElementBytes(spec.dtype);
    reduction->segments.push_back({static_cast<const char*>(submission.input) + offset_bytes,
                                   static_cast<char*>(submission.output) + offset_bytes,
                                   member.count});
  }
  return reductions;
}

}  // namespace

Engine::Engine(const EngineOptions& options, std::unique_ptr<ControlChannel> control,
               std::unique_ptr<Transport> transport)
    : options_(options),
      control_(std::move(control)),
      transport_(std::move(transport)),
      rank_(control_->rank()),
      size_(control_->size()),
      sums_independent_of_slices_(transport_->sums_independent_of_slices()),
      trace_(options.trace_capacity),
      timeline_(std::make_shared<Trace>(options.timeline_capacity)),
      statistics_(std::make_shared<Statistics>()),
      settings_(options.settings),
      agreement_(control_->size(), options.settings),
      stall_inspector_(options.stall, control_.get(),
                       [this](const std::string& name) { return FindGroup(name); }),
      schedule_(options.settings.credit_bytes),
      words_(control_->size(), transport_->takes_device_memory()),
      thread_([this] { Run(); }) {
  if (options.trace) trace_.Start();
}

Engine::~Engine() { Shutdown(0.0); }

Status Engine::DeclareGroup(const std::string& name, const std::vector<TensorSpec>& tensors,
                            std::vector<TensorHandle>* handles, const std::string& arguments) {
  GroupDeclaration declaration{name, tensors, arguments, options_.settings.slice_bytes,
                               options_.settings.credit_bytes};
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = groups_.find(name);
  if (known != groups_.end()) {
    const Status same = CompareWithEarlier(known->second->declaration, declaration);
    if (!same.ok()) return same;
  } else {
    auto group = std::make_unique<Group>(std::move(declaration));
    first_handle_[name] =
        options_.first_handle + static_cast<TensorHandle>(tensors_by_handle_.size());
    for (Tensor& tensor : group->tensors) {
      tensor.handle = options_.first_handle + static_cast<TensorHandle>(tensors_by_handle_.size());
      tensors_by_handle_.push_back(&tensor);
    }
    new_groups_.push_back(group.get());
    groups_[name] = std::move(group);
    if (tensors.empty()) {
      announcement_ = true;
      work_arrived_.notify_one();
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    handles->push_back(first_handle_[name] + static_cast<TensorHandle>(i));
  }
  return {};
}

std::vector<std::vector<int32_t>> Engine::FusedTensors(
    const std::vector<TensorSpec>& tensors) const {
  return FuseTensors(tensors, FusionBytes(options_.settings.slice_bytes));
}

void Engine::Submit(TensorHandle handle, Submission submission) {
  Status refusal;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const TensorHandle index = handle - options_.first_handle;
    if (index < 0 || index >= static_cast<TensorHandle>(tensors_by_handle_.size())) {
      refusal = Status(StatusCode::kInvalidArgument,
                       "a tensor was submitted that this engine does not know; it may stem from "
                       "before hvd_p3 was shut down and initialised again: compile the model and "
                       "trace functions anew after hvd_p3.init()");
    } else {
      Tensor* tensor = tensors_by_handle_[static_cast<size_t>(index)];
      const TensorSpec& spec = tensor->group->spec(*tensor);
      if (ended_) {
        refusal = OfTensor(spec.name, end_status_);
      } else if (shutdown_requested_) {
        refusal = OfTensor(spec.name, Status(StatusCode::kShutdown, kWasShutDown));
      } else {
        statistics_->Hold(BufferBytes(submission, spec.bytes()));
        inbox_.emplace_back(tensor, std::move(submission));
      }
    }
  }
  if (refusal.ok()) {
    work_arrived_.notify_one();
  } else {
    submission.done(refusal);
  }
}

void Engine::ProposeSettings(const EngineSettings& settings) {
  if (rank_ != 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  proposal_ = settings;
}

EngineSettings Engine::settings() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return settings_;
}

std::vector<TraceEvent> Engine::TakeTrace() {
  std::vector<TraceEvent> events;
  const Trace::Taken taken = trace_.Take();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const TraceRecord& record : taken.records) {
    const Tensor* tensor =
        tensors_by_handle_[static_cast<size_t>(record.tensor - options_.first_handle)];
    const TensorSpec& spec = tensor->group->spec(*tensor);
    events.push_back({record.kind, record.time_ns, spec.name, spec.priority, record.offset,
                      record.bytes, record.bytes_in_flight});
  }
  return events;
}

std::vector<Engine::DeclaredTensor> Engine::DeclaredTensors() const {
  std::vector<DeclaredTensor> declared;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Tensor* tensor : tensors_by_handle_) {
    const GroupDeclaration& declaration = tensor->group->declaration;
    declared.push_back({tensor->handle, declaration.name, tensor->group->spec(*tensor)});
  }
  return declared;
}

void Engine::Shutdown(double timeout_s) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    shutdown_requested_ = true;
    work_arrived_.notify_one();
    const auto ended = [this] { return ended_; };
    // The timeout bounds the wait for other ranks, not the transfer of what all have submitted.
    int64_t slices = 0;
    do {
      slices = statistics_->Snapshot().slices;
    } while (!thread_ended_.wait_for(lock, std::chrono::duration<double>(timeout_s), ended) &&
             statistics_->Snapshot().slices > slices);
    give_up_ = true;
    work_arrived_.notify_one();
    const std::chrono::nanoseconds until_idle_look{stall_inspector_.enabled() ? kIdleInspectionNs
                                                                              : 0};
    thread_ended_.wait_for(lock, kLastCall + until_idle_look, ended);
    abandon_ = true;
    work_arrived_.notify_one();
  }
  const std::lock_guard<std::mutex> join_lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

bool Engine::ended_with_all() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_with_all_;
}

void Engine::Run() {
  prctl(PR_SET_NAME, kEngineThreadName, 0, 0, 0);
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  bool goes_on = true;
  while (goes_on) {
    try {
      goes_on = Turn();
    } catch (const std::bad_alloc&) {
      Fail(
          {StatusCode::kOutOfMemory,
           "there is no memory on rank " + std::to_string(rank_) +
               " for a buffer of the reduction; run fewer ranks on this host, or a smaller model"});
      goes_on = false;
    }
  }
  Status reason = failure_;
  if (reason.ok()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_with_all_ = true;
    }
    reason = WhyEnded();
    if (!AwaitFarewell()) Abort();
  } else {
    Abort();
  }
  FailEverything(reason);
}

bool Engine::AwaitFarewell() {
  // All ranks know the last round, so all come here; that one more round ends means that all have
  // come. Otherwise the caller might end MPI, which ends for all ranks at once, while another still
  // waits for the result of the last round.
  words_.Reset(agreement_.num_tensors());
  if (!control_->StartAnd(words_.words(), &negotiation_).ok()) return false;
  const int64_t deadline_ns = NowNanoseconds() + kFarewellNs;
  while (NowNanoseconds() < deadline_ns) {
    bool done = false;
    // An error: another rank has ended MPI. It knew that this one has come.
    if (!control_->Progress().ok() || !negotiation_->Test(&done).ok()) return false;
    if (done) {
      negotiation_.reset();
      return true;
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(PollingPace::kShortestSleepNs));
  }
  return false;
}

void Engine::Abort() {
  const bool control_in_use = control_->Abort();
  const bool transport_in_use = transport_->Abort();
  buffers_stay_in_use_ = control_in_use || transport_in_use;
}

bool Engine::Turn() {
  bool progressed = AdmitSubmissions();
  bool gives_up = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (abandon_) Fail({StatusCode::kShutdown, kWasShutDown});
    gives_up = give_up_;
  }
  if (failure_.ok() && gives_up) stall_inspector_.AskForLastRound();
  if (failure_.ok()) progressed |= PollDeviceEvents();
  if (failure_.ok()) MakeProgress();
  if (failure_.ok()) progressed |= PollSlices();
  if (failure_.ok()) progressed |= PollNegotiation();
  if (failure_.ok()) progressed |= InspectStalls();
  if (!failure_.ok() || (stopping_ && in_flight_.empty())) return false;
  WaitForWork(progressed);
  return true;
}

bool Engine::AdmitSubmissions() {
  std::vector<Group*> groups;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (admitting_.empty()) {
      admitting_.swap(inbox_);
    } else {
      std::move(inbox_.begin(), inbox_.end(), std::back_inserter(admitting_));
      inbox_.clear();
    }
    groups.swap(new_groups_);
    if (announcement_) news_ = true;
    announcement_ = false;
    if (proposal_) agreement_.Propose(*proposal_);
    proposal_.reset();
  }
  for (Group* group : groups) agreement_.Add(group);
  if (admitting_.empty()) return false;
  // One that cannot be admitted for lack of memory, and all behind it, stay for FailEverything.
  while (!admitting_.empty()) {
    MakeRoomForOne(&unfinished_);
    MakeRoomForOne(&awaiting_);
    auto [tensor, submission] = std::move(admitting_.front());
    admitting_.pop_front();
    Admit(tensor, std::move(submission));
  }
  return true;
}

void Engine::Admit(Tensor* tensor, Submission submission) {
  const TensorSpec& spec = tensor->group->spec(*tensor);
  if (!tensor->group->failure.ok()) {
    return End(*tensor, std::move(submission), tensor->group->failure);
  }
  if (tensor->state != Tensor::State::kIdle && tensor->enqueued && !tensor->next) {
    tensor->next = std::move(submission);
    ++to_be_admitted_;
    return;
  }
  if (tensor->state != Tensor::State::kIdle) {
    return End(*tensor, std::move(submission),
               Status(StatusCode::kInvalidArgument,
                      "tensor '" + spec.name +
                          "' was submitted again before its previous all-reduce completed; wait "
                          "for the result first, or use another name"));
  }
  if (!submission.device.is_host() && !transport_->takes_device_memory()) {
    return End(*tensor, std::move(submission),
               Status(StatusCode::kInvalidArgument,
                      "tensor '" + spec.name +
                          "' is in device memory, but hvd_p3 was built without CUDA and NCCL; "
                          "build it with HVD_P3_WITH_CUDA=1"));
  }
  tensor->submission = std::move(submission);
  tensor->submitted_ns = NowNanoseconds();
  tensor->warned = false;
  tensor->enqueued = false;
  tensor->unfinished_index = unfinished_.size();
  unfinished_.push_back(tensor);
  Record(TraceKind::kSubmitted, *tensor, 0, spec.bytes());
  if (tensor->submission.ready != nullptr) {
    tensor->state = Tensor::State::kAwaiting;
    awaiting_.push_back(tensor);
  } else {
    tensor->state = Tensor::State::kReady;
    news_ = true;
  }
}

bool Engine::PollDeviceEvents() {
  // Stable, so that the oldest is always looked at.
  int not_reached = 0;
  Status failure;
  const auto still_awaits = [&](Tensor* tensor) {
    if (not_reached == kMostUnreachedEvents) return true;
    bool reached = false;
    const Status status = tensor->submission.ready->Test(&reached);
    if (!status.ok()) failure = status;
    if (!reached) ++not_reached;
    return !reached;
  };
  const auto reached = std::stable_partition(awaiting_.begin(), awaiting_.end(), still_awaits);
  if (!failure.ok()) Fail(failure);
  if (reached == awaiting_.end()) return false;
  for (auto tensor = reached; tensor != awaiting_.end(); ++tensor) {
    (*tensor)->state = Tensor::State::kReady;
  }
  awaiting_.erase(reached, awaiting_.end());
  news_ = true;
  return true;
}

bool Engine::InspectStalls() {
  const bool was_asked = stall_inspector_.last_round_wanted();
  const Status status =
      stall_inspector_.Inspect(unfinished_, last_transfer_ns_, agreement_.has_agreed());
  if (status.ok()) return stall_inspector_.last_round_wanted() && !was_asked;
  Fail(status);
  stall_inspector_.Flush();
  return true;
}

const Group* Engine::FindGroup(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = groups_.find(name);
  return found == groups_.end() ? nullptr : found->second.get();
}

void Engine::MakeProgress() {
  Status status = control_->Progress();
  if (status.ok()) status = transport_->Progress();
  if (!status.ok()) Fail(status);
}

bool Engine::PollSlices() {
  bool progressed = false;
  for (size_t i = 0; i < in_flight_.size();) {
    bool done = false;
    const Status status = TestSlice(&in_flight_[i], &done);
    if (!status.ok()) {
      Fail(status);
      return true;
    }
    if (!done) {
      ++i;
      continue;
    }
    const ScheduledSlice finished = in_flight_[i].scheduled;
    const int64_t started_ns = in_flight_[i].started_ns;
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
    FinishSlice(finished, started_ns);
    progressed = true;
  }
  return progressed;
}

Status Engine::TestSlice(InFlight* in_flight, bool* done) {
  if (!in_flight->enqueued) NoteEnqueued(in_flight);
  *done = true;
  for (std::unique_ptr<Collective>& collective : in_flight->collectives) {
    if (collective == nullptr) continue;
    bool is_done = false;
    const Status status = collective->Test(&is_done);
    if (!status.ok()) return status;
    if (is_done) collective.reset();
    *done &= is_done;
  }
  return {};
}

void Engine::NoteEnqueued(InFlight* in_flight) {
  std::shared_ptr<StreamEvent> completion;
  for (const std::unique_ptr<Collective>& collective : in_flight->collectives) {
    if (completion == nullptr && collective != nullptr) completion = collective->Completion();
  }
  if (completion == nullptr) return;
  in_flight->enqueued = true;
  Group& group = *in_flight->scheduled.group;
  for (const SliceMember& member :
       group.slices[static_cast<size_t>(in_flight->scheduled.slice)].members) {
    Tensor& tensor = group.tensors[static_cast<size_t>(member.tensor)];
    if (tensor.submission.device.is_host() || --tensor.slices_to_enqueue > 0) continue;
    // The slices are in order on one stream, so this event is behind all of the tensor's.
    if (!tensor.submission.enqueued) continue;
    tensor.enqueued = true;
    tensor.submission.enqueued(completion);
  }
}

bool Engine::PollNegotiation() {
  if (phase_ == Phase::kIdle) {
    if (!WantsRound()) return false;
    StartRound();
    return true;
  }
  bool done = false;
  const Status status = negotiation_->Test(&done);
  if (!status.ok()) {
    Fail(status);
    return true;
  }
  if (!done) return false;
  negotiation_.reset();
  if (phase_ == Phase::kRound) {
    phase_ = Phase::kIdle;
    FinishRound();
  } else {
    phase_ = Phase::kIdle;
    FinishExchange();
  }
  return true;
}

bool Engine::WantsRound() const {
  if (stopping_) return false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (give_up_ || (shutdown_requested_ && unfinished_.empty())) return true;
  }
  if (stall_inspector_.last_round_wanted()) return true;
  if (unfinished_.size() == awaiting_.size() && !agreement_.has_announced()) return false;
  return news_ || NowNanoseconds() >= next_round_ns_;
}

void Engine::StartRound() {
  words_.Reset(agreement_.num_tensors());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // The inbox of a rank that shuts down is closed, so each of the two changes once and stays.
    const bool offers_all =
        shutdown_requested_ && inbox_.empty() && to_be_admitted_ == 0 && awaiting_.empty();
    if (!offers_all) words_.RaiseFlags(kMoreToCome);
    if (give_up_ || (offers_all && unfinished_.empty())) words_.RaiseFlags(kStop);
    if (shutdown_requested_) words_.SetEnding(rank_);
  }
  if (agreement_.has_unsent_settings() || agreement_.has_unsent_announcement()) {
    words_.RaiseFlags(kExchangeWanted);
  }
  for (const Tensor* tensor : unfinished_) {
    if (!tensor->group->sent) words_.RaiseFlags(kExchangeWanted);
    if (!tensor->group->agreed() || tensor->state != Tensor::State::kReady) continue;
    words_.AddReady(tensor->group->first_agreed_id + tensor->index,
                    !tensor->submission.device.is_host());
  }
  words_.SetFinished(finished_slots_);
  if (news_) round_delay_ns_ = kFirstRoundDelayNs;
  news_ = false;
  const Status status = control_->StartAnd(words_.words(), &negotiation_);
  if (!status.ok()) return Fail(status);
  phase_ = Phase::kRound;
}

void Engine::FinishRound() {
  statistics_->RoundFinished();
  if (timeline_->wants_rounds()) timeline_->Record({TraceKind::kRound});
  next_round_ns_ = NowNanoseconds() + round_delay_ns_;
  round_delay_ns_ = std::min(2 * round_delay_ns_, kLastRoundDelayNs);
  schedule_.Finished(words_.finished());
  finished_slots_ &= ~words_.finished();
  const uint64_t flags = words_.flags();
  if (flags & kStop) {
    // No rank starts anything after this round; what is in flight ends. Nothing is lost by it
    // unless a rank gives up: what is queued is unfinished on all ranks, and on one nothing is.
    stopping_ = true;
    return;
  }
  if (agreement_.has_proposal() && schedule_.quiet()) {
    agreement_.AdoptProposal();
    schedule_.Restart(agreement_.settings().credit_bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    settings_ = agreement_.settings();
  }
  for (const RoundWords::Ready& ready : words_.ready()) {
    GloballyReady(ready);
    if (!failure_.ok()) return;
  }
  // All ranks shut down and have offered all that they ever will: what is not globally ready by now
  // never is.
  const bool all_offered = (flags & (kMoreToCome | kExchangeWanted)) == 0;
  if (all_offered) RecordQueued(schedule_.ReleaseIncomplete());
  for (const ScheduledSlice& scheduled : schedule_.StartNext()) {
    StartSlice(scheduled);
    if (!failure_.ok()) return;
  }
  if (all_offered && schedule_.idle()) stopping_ = true;
  if (flags & kExchangeWanted) StartExchange();
}

void Engine::GloballyReady(const RoundWords::Ready& ready) {
  Tensor* tensor = agreement_.tensor(ready.id);
  const Group& group = *tensor->group;
  if (ready.memory == Memory::kMixed) {
    const bool on_host = tensor->submission.device.is_host();
    return Fail({StatusCode::kMismatch,
                 "tensor '" + group.spec(*tensor).name + "' is in " +
                     (on_host ? "host" : "device") + " memory on rank " + std::to_string(rank_) +
                     " and in " + (on_host ? "device" : "host") +
                     " memory on another; place the variable on the same kind of device on all "
                     "ranks"});
  }
  tensor->state = Tensor::State::kScheduled;
  tensor->slices_left =
      static_cast<int64_t>(group.slices_of_tensor[static_cast<size_t>(tensor->index)].size());
  tensor->slices_to_enqueue = tensor->slices_left;
  Record(TraceKind::kNegotiated, *tensor, 0, group.spec(*tensor).bytes());
  RecordQueued(schedule_.TensorReady(tensor));
}

void Engine::StartExchange() {
  exchanged_.clear();
  const Status status =
      control_->StartAllGather(agreement_.TakeUnsent(), &exchanged_, &negotiation_);
  if (!status.ok()) return Fail(status);
  phase_ = Phase::kExchange;
}

void Engine::FinishExchange() {
  std::vector<Group*> settled;
  Status status;
  {
    const std::lock_guard<std::mutex> lock(mutex_);  // for those who read declarations
    status = agreement_.Merge(exchanged_, &settled);
  }
  if (!status.ok()) return Fail(status);
  for (const Group* group : settled) {
    if (group->failure.ok()) continue;
    const std::vector<Tensor*> unfinished = unfinished_;
    for (Tensor* tensor : unfinished) {
      if (tensor->group == group) Complete(tensor, group->failure);
    }
  }
  news_ = true;  // the ready tensors of newly agreed groups
}

void Engine::StartSlice(const ScheduledSlice& scheduled) {
  const Group& group = *scheduled.group;
  const Slice& slice = group.slices[static_cast<size_t>(scheduled.slice)];
  const SliceMember& first = slice.members.front();
  const TensorSpec& spec = group.declaration.tensors[static_cast<size_t>(first.tensor)];

  const int64_t now = NowNanoseconds();
  if (in_flight_.empty()) last_transfer_ns_ = now;
  bytes_in_flight_ += slice.bytes;
  statistics_->SliceStarted();
  for (const SliceMember& member : slice.members) {
    const bool is_first = &member == &first;
    Record(is_first ? TraceKind::kStarted : TraceKind::kMember,
           group.tensors[static_cast<size_t>(member.tensor)], member.offset,
           is_first ? slice.bytes : member.count * ElementBytes(spec.dtype), scheduled.number);
  }
  InFlight in_flight{scheduled, now, {}};
  for (const SliceReduction& reduction : ReductionsOf(group, slice, size_)) {
    in_flight.collectives.emplace_back();
    const Status status = transport_->Start(reduction, &in_flight.collectives.back());
    if (!status.ok()) Fail(status);
  }
  in_flight_.push_back(std::move(in_flight));
}

void Engine::FinishSlice(const ScheduledSlice& scheduled, int64_t started_ns) {
  Group& group = *scheduled.group;
  const Slice& slice = group.slices[static_cast<size_t>(scheduled.slice)];
  const SliceMember& first = slice.members.front();
  last_transfer_ns_ = NowNanoseconds();
  polling_pace_.SliceTook(last_transfer_ns_ - started_ns);
  bytes_in_flight_ -= slice.bytes;
  statistics_->SliceFinished(slice.bytes);
  Record(TraceKind::kFinished, group.tensors[static_cast<size_t>(first.tensor)], first.offset,
         slice.bytes, scheduled.number);
  finished_slots_ |= uint64_t{1} << scheduled.slot;
  news_ = true;
  for (const SliceMember& member : slice.members) {
    Tensor* tensor = &group.tensors[static_cast<size_t>(member.tensor)];
    if (--tensor->slices_left == 0) Complete(tensor, Status());
  }
}

void Engine::Complete(Tensor* tensor, const Status& status) {
  const TensorSpec& spec = tensor->group->spec(*tensor);
  // Idle before the callback runs: it may make another thread submit the tensor again.
  Submission submission = std::move(tensor->submission);
  tensor->submission = Submission();
  tensor->state = Tensor::State::kIdle;
  unfinished_[tensor->unfinished_index] = unfinished_.back();
  unfinished_.back()->unfinished_index = tensor->unfinished_index;
  unfinished_.pop_back();
  if (!awaiting_.empty()) {
    awaiting_.erase(std::remove(awaiting_.begin(), awaiting_.end(), tensor), awaiting_.end());
  }
  Record(TraceKind::kCompleted, *tensor, 0, spec.bytes());
  End(*tensor, std::move(submission), status);
  if (!tensor->next) return;
  submission = std::move(*tensor->next);
  tensor->next.reset();
  --to_be_admitted_;
  Admit(tensor, std::move(submission));
}

void Engine::End(const Tensor& tensor, Submission submission, const Status& status) {
  statistics_->Hold(-BufferBytes(submission, tensor.group->spec(tensor).bytes()));
  submission.done(status);
}

void Engine::Fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

Status Engine::WhyEnded() const {
  std::vector<int> others = words_.ending();
  others.erase(std::remove(others.begin(), others.end(), rank_), others.end());
  if (others.empty()) return {StatusCode::kShutdown, kWasShutDown};
  return {StatusCode::kShutdown,
          RankList(others) + (others.size() > 1 ? " have" : " has") +
              " ended: by hvd_p3.shutdown(), an exception, sys.exit or the end of the program. "
              "Look for the first error in the output of all ranks; if there is none, give all "
              "ranks the same number of steps, see hvd_p3.data.equal_batches"};
}

void Engine::FailEverything(const Status& status) {
  const auto of_tensor = [&status](const Tensor& tensor) {
    return OfTensor(tensor.group->spec(tensor).name, status);
  };
  while (!unfinished_.empty()) {
    Tensor* tensor = unfinished_.back();
    if (buffers_stay_in_use_) buffers_in_use_.push_back(tensor->submission.buffers);
    Complete(tensor, of_tensor(*tensor));
  }
  std::deque<std::pair<Tensor*, Submission>> late;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    end_status_ = status;
    late.swap(inbox_);
    thread_ended_.notify_all();
  }
  for (auto& [tensor, submission] : admitting_) {
    End(*tensor, std::move(submission), of_tensor(*tensor));
  }
  admitting_.clear();
  for (auto& [tensor, submission] : late) {
    End(*tensor, std::move(submission), of_tensor(*tensor));
  }
  if (buffers_stay_in_use_) LeakWhatIsInUse();
}

void Engine::LeakWhatIsInUse() {
  struct InUse {
    std::vector<InFlight> slices;
    std::unique_ptr<Collective> negotiation;
    RoundWords words;
    std::vector<std::shared_ptr<void>> buffers;
  };
  new InUse{std::move(in_flight_), std::move(negotiation_), std::move(words_),
            std::move(buffers_in_use_)};
}

void Engine::WaitForWork(bool progressed) {
  const int64_t now = NowNanoseconds();
  if (progressed) {
    last_progress_ns_ = now;
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (!inbox_.empty() || announcement_ || abandon_) return;
  // Where nothing is unfinished here, a round that this rank has joined cannot bring it anything:
  // the others wait for what this rank submits next. A while later it stops looking (I6).
  const int64_t waited = now - last_progress_ns_;
  const bool waits_for_others = !unfinished_.empty() || agreement_.has_announced();
  const bool nothing_to_gain =
      phase_ == Phase::kRound && !waits_for_others && in_flight_.empty() && waited >= kLingerNs;
  const bool under_way = !in_flight_.empty() || phase_ != Phase::kIdle || !awaiting_.empty();
  if (!under_way || nothing_to_gain) {
    if (!waits_for_others) {
      const auto wanted = [this] {
        return !inbox_.empty() || announcement_ || shutdown_requested_ || abandon_;
      };
      if (stall_inspector_.enabled()) {
        work_arrived_.wait_for(lock, std::chrono::nanoseconds(kIdleInspectionNs), wanted);
      } else {
        work_arrived_.wait(lock, wanted);
      }
    } else {
      work_arrived_.wait_for(lock, std::chrono::nanoseconds(next_round_ns_ - now),
                             [this] { return !inbox_.empty() || announcement_ || abandon_; });
    }
    last_progress_ns_ = NowNanoseconds();
    return;
  }
  const int64_t sleep = polling_pace_.Sleep(waited, !in_flight_.empty());
  work_arrived_.wait_for(lock, std::chrono::nanoseconds(sleep));
}

void Engine::Record(TraceKind kind, const Tensor& tensor, int64_t offset, int64_t bytes,
                    int64_t slice) {
  if (!trace_.enabled() && !timeline_->enabled()) return;
  const TraceRecord record{kind, tensor.handle, slice, offset, bytes, bytes_in_flight_};
  if (kind != TraceKind::kNegotiated && kind != TraceKind::kMember) trace_.Record(record);
  timeline_->Record(record);
}

void Engine::RecordQueued(const std::vector<QueuedSlice>& slices) {
  for (const QueuedSlice& queued : slices) {
    const Tensor* first = agreement_.tensor(queued.key.tensor);
    Record(TraceKind::kQueued, *first, queued.key.offset, queued.bytes);
  }
}

}  // namespace hvd_p3
