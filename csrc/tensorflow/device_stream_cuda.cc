#include "device/cuda_event.h"
#include "tensorflow/core/platform/stream_executor.h"
#include "tensorflow/device_stream.h"
#include "tensorflow/status.h"

namespace hvd_p3 {
namespace {

// Null on the host.
stream_executor::Stream* StreamOf(tensorflow::OpKernelContext* context) {
  const tensorflow::DeviceContext* device = context->op_device_context();
  return device == nullptr ? nullptr : device->stream();
}

}  // namespace

absl::Status RecordInputs(tensorflow::OpKernelContext* context, Device* device,
                          std::shared_ptr<Event>* ready) {
  *device = Device();
  ready->reset();
  stream_executor::Stream* const stream = StreamOf(context);
  if (stream == nullptr) return absl::OkStatus();
  device->index = stream->parent()->device_ordinal();
  std::shared_ptr<StreamEvent> event;
  const Status status =
      RecordCudaEvent(device->index, stream->platform_specific_handle().stream, &event);
  *ready = std::move(event);
  return ToTensorFlow(status);
}

absl::Status BlockStream(tensorflow::OpKernelContext* context, StreamEvent* point) {
  stream_executor::Stream* const stream = StreamOf(context);
  if (stream == nullptr) return absl::OkStatus();
  return ToTensorFlow(point->BlockStream(stream->platform_specific_handle().stream));
}

}  // namespace hvd_p3
