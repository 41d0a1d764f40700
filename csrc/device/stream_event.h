// A point in the work of an accelerator's stream, such as a CUDA event. Any thread may call any
// method. The engine and the TensorFlow ops know accelerators through this interface and
// transport/device_communicator.h alone; tests/engine/ has a simulated device behind both.
#ifndef HVD_P3_DEVICE_STREAM_EVENT_H_
#define HVD_P3_DEVICE_STREAM_EVENT_H_

#include "core/event.h"
#include "core/status.h"

namespace hvd_p3 {

class StreamEvent : public Event {
 public:
  // Makes what is enqueued on `stream` from now on wait for this point. Does not block the host.
  // `stream`: the device library's handle of a stream, for CUDA a cudaStream_t.
  virtual Status BlockStream(void* stream) = 0;
};

}  // namespace hvd_p3

#endif  // HVD_P3_DEVICE_STREAM_EVENT_H_
