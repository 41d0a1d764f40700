#include "simulated_device.h"

#include <chrono>
#include <utility>

namespace hvd_p3 {
namespace {

class SimulatedEvent : public StreamEvent, public std::enable_shared_from_this<SimulatedEvent> {
 public:
  void Reach() {
    const std::lock_guard<std::mutex> lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }

  Status Test(bool* reached) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    *reached = reached_;
    return {};
  }

  // `stream`: a SimulatedStream. Its owner may let go of the event before the stream has passed.
  Status BlockStream(void* stream) override {
    static_cast<SimulatedStream*>(stream)->Enqueue([event = shared_from_this()] { event->Wait(); });
    return {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

}  // namespace

SimulatedStream::SimulatedStream(int64_t most_delay_us, uint64_t seed)
    : most_delay_us_(most_delay_us), random_(seed), thread_([this] { Run(); }) {}

SimulatedStream::~SimulatedStream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void SimulatedStream::Enqueue(std::function<void()> work) { Push({std::move(work), false}); }

std::shared_ptr<StreamEvent> SimulatedStream::Record() {
  auto event = std::make_shared<SimulatedEvent>();
  Push({[event] { event->Reach(); }, true});
  return event;
}

void SimulatedStream::Push(Entry entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_back(std::move(entry));
  changed_.notify_all();
}

void SimulatedStream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return entries_.empty() && !working_; });
}

void SimulatedStream::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
}

void SimulatedStream::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !entries_.empty() || ending_; });
    if (entries_.empty()) return;
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    if (aborted_ && !entry.is_event) continue;
    working_ = true;
    const auto delay_us =
        static_cast<int64_t>(random_() % static_cast<uint64_t>(most_delay_us_ + 1));
    lock.unlock();
    if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    entry.work();
    lock.lock();
    working_ = false;
    changed_.notify_all();
  }
}

}  // namespace hvd_p3
