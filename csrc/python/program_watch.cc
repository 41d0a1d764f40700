#include "python/program_watch.h"

#include <Python.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>

namespace hvd_p3 {
namespace {

constexpr std::chrono::milliseconds kLook{100};

using Flag = std::atomic<bool>;

// Has the main thread set the flag as soon as it executes Python code. Python calls this without
// the GIL too, and keeps few such calls: false if it has no place for one more.
bool AskForSign(const std::shared_ptr<Flag>& came_back) {
  auto* const owned = new std::shared_ptr<Flag>(came_back);
  const auto set = [](void* flag) {
    const std::unique_ptr<std::shared_ptr<Flag>> mine(static_cast<std::shared_ptr<Flag>*>(flag));
    (*mine)->store(true);
    return 0;
  };
  if (Py_AddPendingCall(set, owned) == 0) return true;
  delete owned;
  return false;
}

void Watch(std::chrono::duration<double> patience, const std::string& message,
           const std::function<bool()>& ended) {
  const auto came_back = std::make_shared<Flag>(true);
  bool asked = false;
  auto last_sign = std::chrono::steady_clock::now();
  while (!ended()) {
    if (came_back->load()) {
      last_sign = std::chrono::steady_clock::now();
      came_back->store(false);
      asked = false;
    }
    asked = asked || AskForSign(came_back);
    if (std::chrono::steady_clock::now() - last_sign > patience) {
      std::cerr << message << std::flush;
      _exit(1);
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

void WatchProgram(double patience_s, const std::string& message, std::function<bool()> ended) {
  // Detached: it ends the process, or ends with the engine.
  std::thread([patience_s, message, ended = std::move(ended)] {
    Watch(std::chrono::duration<double>(patience_s), message, ended);
  }).detach();
}

}  // namespace hvd_p3
