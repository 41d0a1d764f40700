// Events on CUDA streams. Built only with HVD_P3_WITH_CUDA. Any thread may call these functions.
#ifndef HVD_P3_DEVICE_CUDA_EVENT_H_
#define HVD_P3_DEVICE_CUDA_EVENT_H_

#include <memory>

#include "device/stream_event.h"

namespace hvd_p3 {

// The point behind all that was enqueued on `stream`, a cudaStream_t of the GPU with this index.
Status RecordCudaEvent(int device_index, void* stream, std::shared_ptr<StreamEvent>* event);

}  // namespace hvd_p3

#endif  // HVD_P3_DEVICE_CUDA_EVENT_H_
