// A bounded record of what the engine did, in the order in which it did it. Off unless the options
// ask for it. Record may be called from any thread; Take returns and clears the record.
#ifndef HVD_P3_CORE_TRACE_H_
#define HVD_P3_CORE_TRACE_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace hvd_p3 {

enum class TraceKind : int8_t {
  kSubmitted,  // a tensor was submitted on this rank
  kQueued,     // a slice became globally ready
  kStarted,    // a slice's collective started
  kFinished,   // a slice's collective finished on this rank
  kCompleted,  // a tensor completed on this rank
};

const char* TraceKindName(TraceKind kind);

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
  Trace(bool enabled, size_t capacity) : enabled_(enabled), capacity_(capacity) {}

  bool enabled() const { return enabled_; }
  // Drops the event when the record is full; the start of a run matters more than its end.
  void Record(TraceEvent event);
  std::vector<TraceEvent> Take();

 private:
  const bool enabled_;
  const size_t capacity_;
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_TRACE_H_
