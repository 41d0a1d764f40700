// A bounded record of what happened to tensors and slices, in the order in which it was recorded.
// Off until started; can be started and stopped at any time. While it is off, recording costs one
// relaxed load. Any thread may call any method.
#ifndef HVD_P3_CORE_TRACE_H_
#define HVD_P3_CORE_TRACE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

namespace hvd_p3 {

enum class TraceKind : int8_t {
  kSubmitted,   // a tensor was submitted on this rank
  kNegotiated,  // a tensor became ready on all ranks
  kQueued,      // a slice entered the queue: all its tensors are ready on all ranks
  kStarted,     // a slice's collective started
  kMember,      // a further tensor of the slice that has started under this number
  kFinished,    // a slice's collective finished on this rank
  kCompleted,   // a tensor completed on this rank
  kApplied,     // whoever applies the reduced gradient has taken it
  kWaitBegan,   // the forward pass came to a tensor that is not reduced yet
  kWaitEnded,   // that tensor is reduced, or has failed
  kRound,       // a negotiation round ended
};

const char* TraceKindName(TraceKind kind);

// Small, and without a name, so that recording is cheap.
struct TraceRecord {
  TraceKind kind = TraceKind::kSubmitted;
  int64_t tensor = -1;  // handle; of a slice: of its first member; -1: none
  int64_t slice = -1;   // number of a started slice, the same on all ranks; -1: none
  int64_t offset = 0;   // elements
  int64_t bytes = 0;
  int64_t bytes_in_flight = 0;  // on this rank, after the event
  int64_t time_ns = 0;          // steady clock; set by Record
};

// A record for people: of what engines report through Engine::TakeTrace.
struct TraceEvent {
  TraceKind kind = TraceKind::kSubmitted;
  int64_t time_ns = 0;  // steady clock
  std::string tensor;   // of a fused slice: its first member
  int64_t priority = 0;
  int64_t offset = 0;  // elements
  int64_t bytes = 0;
  int64_t bytes_in_flight = 0;  // after the event
};

class Trace {
 public:
  explicit Trace(size_t capacity) : capacity_(capacity) {}

  // Clears the record and begins. `rounds`: whether negotiation rounds are wanted too.
  void Start(bool rounds = false);
  void Stop();
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  bool wants_rounds() const { return wants_rounds_.load(std::memory_order_relaxed); }

  // Does nothing while off. Drops the event, and counts it, when the record is full: the start of a
  // run matters more than its end.
  void Record(const TraceRecord& record) {
    if (enabled()) Append(record);
  }

  struct Taken {
    std::deque<TraceRecord> records;
    int64_t dropped = 0;
  };
  // Returns and clears the record.
  Taken Take();

 private:
  void Append(TraceRecord record);

  const size_t capacity_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> wants_rounds_{false};
  std::mutex mutex_;
  Taken taken_;  // a deque: it grows without copying
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_TRACE_H_
