// A processor that computes without using the CPU: work takes its time and nothing else. One per
// process; any thread may submit work.
#ifndef HVD_P3_BENCHMARKS_EMULATED_DEVICE_H_
#define HVD_P3_BENCHMARKS_EMULATED_DEVICE_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

namespace hvd_p3 {

class EmulatedDevice {
 public:
  static EmulatedDevice& Instance();
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

  // All times are multiplied by this from now on; 1 at first.
  void SetTimeScale(double scale);

  // Start and end of the last pieces of work, in seconds of the steady clock, oldest first.
  std::vector<std::pair<double, double>> Record();

  // Runs work of this length behind all that was submitted before, and calls `done` when it ends.
  // Work starts when it is submitted and the device is free, except that
  //  - what the host's timer was late in reporting the end of the work before is made up for, if
  //    this work follows at once: a real device needs no timer;
  //  - work too short for a timer ends at once, and its time is added to the next.
  void Run(double seconds, std::function<void()> done);

 private:
  using Clock = std::chrono::steady_clock;
  struct Work {
    Clock::time_point end;
    std::function<void()> done;
  };

  EmulatedDevice();
  ~EmulatedDevice();
  void Report();  // the timer thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<Work> running_;
  double scale_ = 1.0;
  Clock::time_point free_at_;      // when all that was submitted ends
  Clock::time_point reported_at_;  // when the end of the last work was reported
  Clock::duration lateness_{};     // by how much too late that was
  std::deque<std::pair<double, double>> record_;
  bool ending_ = false;
  std::thread timer_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_BENCHMARKS_EMULATED_DEVICE_H_
