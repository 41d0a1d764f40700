// A device without hardware: its memory is the host's, and each stream is a thread that does what
// is enqueued in order, late, and independently of other streams. Any thread may call any method.
#ifndef HVD_P3_TESTS_ENGINE_SIMULATED_DEVICE_H_
#define HVD_P3_TESTS_ENGINE_SIMULATED_DEVICE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "device/stream_event.h"

namespace hvd_p3 {

class SimulatedStream {
 public:
  // Waits up to `most_delay_us` microseconds, random by `seed`, before each piece of work.
  SimulatedStream(int64_t most_delay_us, uint64_t seed);
  // Does what is enqueued first, unless the stream was aborted.
  ~SimulatedStream();
  SimulatedStream(const SimulatedStream&) = delete;
  SimulatedStream& operator=(const SimulatedStream&) = delete;

  void Enqueue(std::function<void()> work);
  // The point behind what was enqueued so far.
  std::shared_ptr<StreamEvent> Record();
  // Blocks until all that was enqueued is done.
  void Synchronize();
  // Drops what is not done, but for events, which are reached.
  void Abort();

 private:
  struct Entry {
    std::function<void()> work;
    bool is_event = false;
  };
  void Push(Entry entry);
  void Run();

  const int64_t most_delay_us_;
  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool working_ = false;
  bool aborted_ = false;
  bool ending_ = false;
  std::thread thread_;  // last: starts when all the rest is constructed
};

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_ENGINE_SIMULATED_DEVICE_H_
