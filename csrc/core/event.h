// Work that another party enqueued, and whether it has reached a point: for example a CUDA event
// recorded on TensorFlow's compute stream behind the kernel that writes a gradient.
#ifndef HVD_P3_CORE_EVENT_H_
#define HVD_P3_CORE_EVENT_H_

#include "core/status.h"

namespace hvd_p3 {

class Event {
 public:
  virtual ~Event() = default;
  // Does not block. Not OK: the point can never be reached, for example after a device error.
  virtual Status Test(bool* reached) = 0;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_EVENT_H_
