#include "core/trace.h"

#include <utility>

#include "core/clock.h"

namespace hvd_p3 {

const char* TraceKindName(TraceKind kind) {
  switch (kind) {
    case TraceKind::kSubmitted:
      return "submitted";
    case TraceKind::kNegotiated:
      return "negotiated";
    case TraceKind::kQueued:
      return "queued";
    case TraceKind::kStarted:
      return "started";
    case TraceKind::kMember:
      return "member";
    case TraceKind::kFinished:
      return "finished";
    case TraceKind::kCompleted:
      return "completed";
    case TraceKind::kApplied:
      return "applied";
    case TraceKind::kWaitBegan:
      return "wait began";
    case TraceKind::kWaitEnded:
      return "wait ended";
    case TraceKind::kRound:
      return "round";
  }
  return "";
}

void Trace::Start(bool rounds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  taken_ = Taken();
  wants_rounds_ = rounds;
  enabled_ = true;
}

void Trace::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  enabled_ = false;
  wants_rounds_ = false;
}

void Trace::Append(TraceRecord record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!enabled()) return;  // stopped meanwhile
  if (taken_.records.size() >= capacity_) {
    taken_.dropped += 1;
    return;
  }
  record.time_ns = NowNanoseconds();
  taken_.records.push_back(record);
}

Trace::Taken Trace::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(taken_, Taken());
}

}  // namespace hvd_p3
