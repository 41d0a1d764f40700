#include "emulated_device.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

namespace hvd_p3 {
namespace {

constexpr std::chrono::microseconds kShortest{50};  // work that is worth a timer
constexpr std::chrono::microseconds kFollows{200};  // within this, work follows the work before
constexpr std::chrono::milliseconds kMostLate{2};   // no more lateness is made up for
constexpr unsigned long kTimerSlackNs = 1'000;
constexpr size_t kRecorded = 1 << 20;  // pieces of work

}  // namespace

EmulatedDevice& EmulatedDevice::Instance() {
  static EmulatedDevice device;
  return device;
}

EmulatedDevice::EmulatedDevice() : timer_([this] { Report(); }) {}

EmulatedDevice::~EmulatedDevice() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  timer_.join();
}

void EmulatedDevice::SetTimeScale(double scale) {
  const std::lock_guard<std::mutex> lock(mutex_);
  scale_ = scale;
}

std::vector<std::pair<double, double>> EmulatedDevice::Record() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {record_.begin(), record_.end()};
}

void EmulatedDevice::Run(double seconds, std::function<void()> done) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Clock::time_point now = Clock::now();
    const bool follows = now - reported_at_ < kFollows;
    const Clock::time_point submitted =
        follows ? now - std::min<Clock::duration>(lateness_, kMostLate) : now;
    const auto length = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(seconds * scale_));
    free_at_ = std::max(free_at_, submitted) + length;
    const double end = std::chrono::duration<double>(free_at_.time_since_epoch()).count();
    record_.emplace_back(end - seconds * scale_, end);
    if (record_.size() > kRecorded) record_.pop_front();
    if (free_at_ - now >= kShortest) {
      running_.push({free_at_, std::move(done)});
      changed_.notify_one();
      return;
    }
  }
  done();
}

void EmulatedDevice::Report() {
  prctl(PR_SET_NAME, "emulated device", 0, 0, 0);
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !running_.empty(); });
    if (running_.empty()) return;
    Work work = std::move(running_.front());
    running_.pop();
    lock.unlock();
    std::this_thread::sleep_until(work.end);
    lock.lock();
    reported_at_ = Clock::now();
    lateness_ = reported_at_ - work.end;
    lock.unlock();
    work.done();
    lock.lock();
  }
}

}  // namespace hvd_p3
