#include "core/statistics.h"

#include "core/clock.h"

namespace hvd_p3 {

void Statistics::SliceStarted() {
  const std::lock_guard<std::mutex> lock(mutex_);
  communication_.Enter(NowNanoseconds());
}

void Statistics::SliceFinished(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  communication_.Leave(NowNanoseconds());
  counters_.slices += 1;
  counters_.bytes += bytes;
}

void Statistics::RoundFinished() {
  const std::lock_guard<std::mutex> lock(mutex_);
  counters_.negotiation_rounds += 1;
}

void Statistics::ReaderBlocked() {
  const std::lock_guard<std::mutex> lock(mutex_);
  forward_wait_.Enter(NowNanoseconds());
}

void Statistics::ReaderReleased() {
  const std::lock_guard<std::mutex> lock(mutex_);
  forward_wait_.Leave(NowNanoseconds());
}

void Statistics::Hold(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  counters_.held_bytes += bytes;
}

StatisticsSnapshot Statistics::Snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now = NowNanoseconds();
  StatisticsSnapshot snapshot = counters_;
  snapshot.communication_ns = communication_.Total(now);
  snapshot.forward_wait_ns = forward_wait_.Total(now);
  return snapshot;
}

}  // namespace hvd_p3
