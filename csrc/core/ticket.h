// Lets a thread wait for one submission. The engine completes it; any number of threads may wait.
#ifndef HVD_P3_CORE_TICKET_H_
#define HVD_P3_CORE_TICKET_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/status.h"

namespace hvd_p3 {

class Ticket {
 public:
  void Complete(const Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
    completions_ += 1;
    completed_.notify_all();
  }

  // Returns false after `timeout_s` seconds without completion.
  bool Wait(double timeout_s, Status* status) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!completed_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                             [this] { return completions_ > 0; })) {
      return false;
    }
    *status = status_;
    return true;
  }

  // How often Complete was called: 1 once done, by invariant I4.
  int completions() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return completions_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable completed_;
  Status status_;
  int completions_ = 0;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_TICKET_H_
