// Counters of the engine since it started. Any thread may call any method.
#ifndef HVD_P3_CORE_STATISTICS_H_
#define HVD_P3_CORE_STATISTICS_H_

#include <cstdint>
#include <mutex>

namespace hvd_p3 {

struct StatisticsSnapshot {
  int64_t slices = 0;              // collectives finished on this rank
  int64_t bytes = 0;               // payload of those
  int64_t negotiation_rounds = 0;  // control all-reduces finished
  int64_t communication_ns = 0;    // wall time with at least one slice in flight
  int64_t forward_wait_ns = 0;     // wall time with at least one reader blocked on a reduction
  int64_t held_bytes = 0;          // buffers of unfinished tensors now; in place, they count once
};

// Wall time during which a count was above zero, that is, the length of a union of intervals.
class BusyTime {
 public:
  void Enter(int64_t now_ns) {
    if (count_++ == 0) since_ns_ = now_ns;
  }
  void Leave(int64_t now_ns) {
    if (--count_ == 0) total_ns_ += now_ns - since_ns_;
  }
  int64_t Total(int64_t now_ns) const { return total_ns_ + (count_ > 0 ? now_ns - since_ns_ : 0); }

 private:
  int64_t count_ = 0;
  int64_t since_ns_ = 0;
  int64_t total_ns_ = 0;
};

class Statistics {
 public:
  void SliceStarted();
  void SliceFinished(int64_t bytes);
  void RoundFinished();
  void ReaderBlocked();
  void ReaderReleased();
  void Hold(int64_t bytes);  // negative to release
  StatisticsSnapshot Snapshot() const;

 private:
  mutable std::mutex mutex_;
  StatisticsSnapshot counters_;
  BusyTime communication_;
  BusyTime forward_wait_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_STATISTICS_H_
