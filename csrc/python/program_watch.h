// Ends the process if its program does not come back to Python after the engine has failed: it may
// wait in an operation of Horovod or MPI for a rank that is gone, and nothing can cancel that.
// Start may be called on any thread, with or without the GIL, which the blocked program may hold.
#ifndef HVD_P3_PYTHON_PROGRAM_WATCH_H_
#define HVD_P3_PYTHON_PROGRAM_WATCH_H_

#include <functional>
#include <string>

namespace hvd_p3 {

// From now on until `ended()`: if Python's main thread executes nothing for `patience_s` seconds,
// writes `message` to standard error and ends the process with exit code 1. `ended` is called on a
// thread of the watch.
void WatchProgram(double patience_s, const std::string& message, std::function<bool()> ended);

}  // namespace hvd_p3

#endif  // HVD_P3_PYTHON_PROGRAM_WATCH_H_
