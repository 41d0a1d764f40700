#include "core/trace.h"

#include <utility>

#include "core/clock.h"

namespace hvd_p3 {

const char* TraceKindName(TraceKind kind) {
  switch (kind) {
    case TraceKind::kSubmitted:
      return "submitted";
    case TraceKind::kQueued:
      return "queued";
    case TraceKind::kStarted:
      return "started";
    case TraceKind::kFinished:
      return "finished";
    case TraceKind::kCompleted:
      return "completed";
  }
  return "";
}

void Trace::Record(TraceEvent event) {
  if (!enabled_) return;
  event.time_ns = NowNanoseconds();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (events_.size() < capacity_) events_.push_back(std::move(event));
}

std::vector<TraceEvent> Trace::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(events_, {});
}

}  // namespace hvd_p3
