// The priority tensor queue: one engine per process, with one thread that makes every communication
// call. Tensors are declared once, then submitted each step; the engine agrees with the other ranks
// on which are ready everywhere and all-reduces their slices, the most urgent first.
//
// Any thread may call any public method. Callbacks run on the engine thread and must not block.
//
// Invariants, see docs/architecture.md: I1 same collectives in the same order on all ranks; I2 the
// most urgent globally ready slice starts first; I3 bytes in flight within the credit; I4 every
// submission completes exactly once; I5 nothing stays pending after an error or shutdown; I6 no
// network use and next to no CPU when nothing is submitted; I7 slicing independent of timing.
#ifndef HVD_P3_CORE_ENGINE_H_
#define HVD_P3_CORE_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/agreement.h"
#include "core/group.h"
#include "core/polling_pace.h"
#include "core/round_words.h"
#include "core/schedule.h"
#include "core/settings.h"
#include "core/stall_inspector.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "transport/transport.h"

namespace hvd_p3 {

// The engine thread's name, for tools such as `top -H`.
constexpr char kEngineThreadName[] = "hvd_p3 engine";

struct EngineOptions {
  EngineSettings settings;
  bool trace = false;
  size_t trace_capacity = 1 << 20;     // events
  size_t timeline_capacity = 1 << 18;  // events
  StallOptions stall;
  // Handles count from here, so that those of an earlier engine of the process are recognised.
  TensorHandle first_handle = 0;
};

class Engine {
 public:
  // Takes over both halves of the transport and starts the engine thread.
  Engine(const EngineOptions& options, std::unique_ptr<ControlChannel> control,
         std::unique_ptr<Transport> transport);
  // Shuts down without waiting for other ranks.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const EngineOptions& options() const { return options_; }

  // Declares the tensors that are sliced and fused together under this name. Does not communicate;
  // ranks agree at the first submission. Declaring the same group again returns the same handles.
  // Returns kInvalidArgument if the name stands for other tensors already.
  // `arguments`: text that must be the same on all ranks. A group without tensors is compared with
  // the others' as if it had been submitted: a rank says so that it goes another way than the
  // engine's, and one that waits for its tensors gets an error.
  Status DeclareGroup(const std::string& name, const std::vector<TensorSpec>& tensors,
                      std::vector<TensorHandle>* handles, const std::string& arguments = "");

  // Which tensors of such a group are reduced as one slice: sets of indices. The reduction of one
  // waits for all of its set, so submit all or none.
  std::vector<std::vector<int32_t>> FusedTensors(const std::vector<TensorSpec>& tensors) const;

  // Starts one all-reduce of a declared tensor, whose previous one must have completed. Returns at
  // once; `submission.done` reports the result or the error. One whose reduction is enqueued on a
  // device need not have completed.
  void Submit(TensorHandle handle, Submission submission);

  // On rank 0: asks for other settings. All ranks adopt them together, the next time that nothing
  // is ready or in flight on any of them. Ignored on other ranks.
  void ProposeSettings(const EngineSettings& settings);
  // Those in force on this rank.
  EngineSettings settings() const;
  // Whether the sums of all ranks are the same bits whatever the slices.
  bool sums_independent_of_slices() const { return sums_independent_of_slices_; }

  // Refuses further submissions, and ends the engine on all ranks once what this rank has submitted
  // is reduced; what is unfinished elsewhere then completes with kShutdown. If all ranks shut down,
  // what all have submitted is reduced, and the rest completes with kShutdown.
  // Waits for the other ranks while slices are reduced and up to `timeout_s` seconds without; then
  // gives up what is unfinished here, and at last leaves without the others.
  void Shutdown(double timeout_s);

  // Whether the engine has ended together with those of all ranks, without an error.
  bool ended_with_all() const;

  // May outlive the engine.
  const std::shared_ptr<Statistics>& statistics() const { return statistics_; }
  // Returns and clears the record that `options.trace` asks for.
  std::vector<TraceEvent> TakeTrace();
  // The record of a timeline, which has more kinds of events. May outlive the engine.
  const std::shared_ptr<Trace>& timeline() const { return timeline_; }
  struct DeclaredTensor {
    TensorHandle handle = 0;
    std::string group;
    TensorSpec spec;
  };
  // All tensors that this rank has declared, by handle.
  std::vector<DeclaredTensor> DeclaredTensors() const;

 private:
  struct InFlight {
    ScheduledSlice scheduled;
    int64_t started_ns = 0;
    // None: a slice without elements. Two: some members are in host and some in device memory.
    std::vector<std::unique_ptr<Collective>> collectives;
    bool enqueued = false;  // reported to the members' tensors
  };
  enum class Phase { kIdle, kRound, kExchange };

  // All below run on the engine thread.
  void Run();
  bool Turn();
  bool AdmitSubmissions();
  void Admit(Tensor* tensor, Submission submission);
  bool PollDeviceEvents();
  void MakeProgress();
  const Group* FindGroup(const std::string& name) const;
  bool PollSlices();
  Status TestSlice(InFlight* in_flight, bool* done);
  void NoteEnqueued(InFlight* in_flight);
  bool PollNegotiation();
  bool WantsRound() const;
  void StartRound();
  void FinishRound();
  void GloballyReady(const RoundWords::Ready& ready);
  void StartExchange();
  void FinishExchange();
  void StartSlice(const ScheduledSlice& scheduled);
  void FinishSlice(const ScheduledSlice& scheduled, int64_t started_ns);
  void Complete(Tensor* tensor, const Status& status);
  // Gives back what `Submit` has taken.
  void End(const Tensor& tensor, Submission submission, const Status& status);
  void Fail(Status status);
  // Why the engine ends without an error, from the words of the last round.
  Status WhyEnded() const;
  // After the last round: returns whether all ranks have seen its result, as far as this one can
  // know.
  bool AwaitFarewell();
  void Abort();
  void FailEverything(const Status& status);
  void LeakWhatIsInUse();
  // Returns whether there is something to do at once.
  bool InspectStalls();
  void WaitForWork(bool progressed);
  void Record(TraceKind kind, const Tensor& tensor, int64_t offset, int64_t bytes,
              int64_t slice = -1);
  void RecordQueued(const std::vector<QueuedSlice>& slices);

  const EngineOptions options_;
  const std::unique_ptr<ControlChannel> control_;
  const std::unique_ptr<Transport> transport_;
  const int rank_;
  const int size_;
  const bool sums_independent_of_slices_;
  Trace trace_;
  const std::shared_ptr<Trace> timeline_;
  const std::shared_ptr<Statistics> statistics_;

  // Shared between threads, guarded by mutex_.
  mutable std::mutex mutex_;
  std::mutex join_mutex_;
  std::condition_variable work_arrived_;
  std::condition_variable thread_ended_;
  std::map<std::string, std::unique_ptr<Group>> groups_;
  std::deque<Tensor*> tensors_by_handle_;
  std::map<std::string, TensorHandle> first_handle_;  // by group name
  std::vector<Group*> new_groups_;
  bool announcement_ = false;  // one of these has no tensors
  std::deque<std::pair<Tensor*, Submission>> inbox_;
  bool shutdown_requested_ = false;  // the inbox is closed
  bool give_up_ = false;             // end in the next round, whatever is unfinished
  bool abandon_ = false;             // leave without waiting for other ranks
  bool ended_ = false;
  Status end_status_;  // why the engine ended, without a tensor's name
  bool ended_with_all_ = false;
  std::optional<EngineSettings> proposal_;
  EngineSettings settings_;  // in force

  // Owned by the engine thread.
  Agreement agreement_;
  StallInspector stall_inspector_;
  Schedule schedule_;
  std::deque<std::pair<Tensor*, Submission>> admitting_;  // taken from the inbox
  std::vector<Tensor*> unfinished_;                       // submitted and not completed
  std::vector<Tensor*> awaiting_;  // of those, the ones whose device event is not reached
  int64_t to_be_admitted_ = 0;     // submissions that wait for their tensor's earlier one
  std::vector<InFlight> in_flight_;
  uint64_t finished_slots_ = 0;  // finished here, not yet reported in a round that completed
  int64_t bytes_in_flight_ = 0;
  Phase phase_ = Phase::kIdle;
  RoundWords words_;
  std::vector<std::string> exchanged_;
  std::unique_ptr<Collective> negotiation_;
  bool news_ = false;  // something happened here that other ranks do not know
  bool stopping_ = false;
  Status failure_;
  int64_t next_round_ns_ = 0;  // a round without news starts no earlier
  int64_t round_delay_ns_ = 0;
  int64_t last_progress_ns_ = 0;
  PollingPace polling_pace_;
  int64_t last_transfer_ns_ = 0;  // when a slice last finished, or the first of some started
  // After a failure: collectives that cannot be cancelled may write to their buffers until the
  // process ends, so these are never freed.
  bool buffers_stay_in_use_ = false;
  std::vector<std::shared_ptr<void>> buffers_in_use_;

  std::thread thread_;  // last: starts when all the rest is constructed
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_ENGINE_H_
