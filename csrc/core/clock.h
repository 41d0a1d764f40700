// The one clock of the engine: steady, in nanoseconds. Any thread may call it.
#ifndef HVD_P3_CORE_CLOCK_H_
#define HVD_P3_CORE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace hvd_p3 {

inline int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_CLOCK_H_
