// Instead of csrc/tensorflow/device_stream_cuda.cc: host memory counts as a device's.
#include "simulation.h"
#include "tensorflow/device_stream.h"
#include "tensorflow/status.h"

namespace hvd_p3 {

absl::Status RecordInputs(tensorflow::OpKernelContext*, Device* device,
                          std::shared_ptr<Event>* ready) {
  device->index = 0;
  *ready = CurrentSimulation()->compute.Record();
  return absl::OkStatus();
}

absl::Status BlockStream(tensorflow::OpKernelContext*, StreamEvent* point) {
  ++CurrentSimulation()->waits;
  return ToTensorFlow(point->BlockStream(&CurrentSimulation()->compute));
}

}  // namespace hvd_p3
