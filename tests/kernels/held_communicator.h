// A library that reduces the memory of a simulated device on one rank, when the test says so.
#ifndef HVD_P3_TESTS_KERNELS_HELD_COMMUNICATOR_H_
#define HVD_P3_TESTS_KERNELS_HELD_COMMUNICATOR_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/device_communicator.h"

namespace hvd_p3 {

// Shared by the test and the communicator. Any thread may call any method.
class Hold {
 public:
  // Until Release, reductions that are enqueued do not run.
  void Begin();
  void Release();
  // The library reports an error from now on; what is enqueued never runs.
  void Fail();
  // How many reductions are enqueued with the event behind them.
  int64_t enqueued();

  // Of the communicator:
  bool failed();
  void Enqueued();
  void Abort();
  // Blocks while held. Returns whether the reduction runs.
  bool Wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool failed_ = false;
  bool aborted_ = false;
  int64_t enqueued_ = 0;
};

std::unique_ptr<DeviceCommunicator> MakeHeldCommunicator(std::shared_ptr<Hold> hold);

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_KERNELS_HELD_COMMUNICATOR_H_
