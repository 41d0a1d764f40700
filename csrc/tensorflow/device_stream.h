// The stream on which TensorFlow computes on the device of an op, as far as the ops need it.
// device_stream_cuda.cc is for builds with CUDA, device_stream_host.cc for those without, whose ops
// run on the host alone.
#ifndef HVD_P3_TENSORFLOW_DEVICE_STREAM_H_
#define HVD_P3_TENSORFLOW_DEVICE_STREAM_H_

#include <memory>

#include "core/event.h"
#include "core/types.h"
#include "device/stream_event.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hvd_p3 {

// Where the tensors of the op are, and the point from which on they are computed: null on the host,
// where they are already.
absl::Status RecordInputs(tensorflow::OpKernelContext* context, Device* device,
                          std::shared_ptr<Event>* ready);

// Makes what the op's device computes from now on wait for `point`, without blocking the host.
absl::Status BlockStream(tensorflow::OpKernelContext* context, StreamEvent* point);

}  // namespace hvd_p3

#endif  // HVD_P3_TENSORFLOW_DEVICE_STREAM_H_
