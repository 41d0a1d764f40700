// Waiting for other ranks in the background: sleeps between two looks, ever longer up to a
// millisecond, so that a waiting thread takes next to nothing from the threads that train.
// One object for each wait, used by the thread that waits.
#ifndef HVD_P3_SHADOW_BACK_OFF_H_
#define HVD_P3_SHADOW_BACK_OFF_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "core/clock.h"

namespace hvd_p3 {

class BackOff {
 public:
  // A negative `timeout_s` waits without a limit.
  explicit BackOff(double timeout_s) : start_ns_(NowNanoseconds()), timeout_s_(timeout_s) {}

  // Sleeps. Returns false, at once, when the time limit has passed.
  bool Wait() {
    const double waited_s = 1e-9 * static_cast<double>(NowNanoseconds() - start_ns_);
    if (timeout_s_ >= 0 && waited_s >= timeout_s_) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(sleep_us_));
    sleep_us_ = std::min(2 * sleep_us_, kLongestUs);
    return true;
  }

  // Something happened: the next sleep is short again.
  void Reset() { sleep_us_ = kShortestUs; }

 private:
  static constexpr int64_t kShortestUs = 20;
  static constexpr int64_t kLongestUs = 1000;

  const int64_t start_ns_;
  const double timeout_s_;
  int64_t sleep_us_ = kShortestUs;
};

}  // namespace hvd_p3

#endif  // HVD_P3_SHADOW_BACK_OFF_H_
