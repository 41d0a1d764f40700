#include "tensorflow/device_stream.h"

namespace hvd_p3 {

absl::Status RecordInputs(tensorflow::OpKernelContext*, Device* device,
                          std::shared_ptr<Event>* ready) {
  *device = Device();
  ready->reset();
  return absl::OkStatus();
}

absl::Status BlockStream(tensorflow::OpKernelContext*, StreamEvent*) { return absl::OkStatus(); }

}  // namespace hvd_p3
