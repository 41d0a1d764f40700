// Elementwise scaling of buffers in the memory of an NVIDIA GPU, with the results of Scale in
// core/arithmetic.h, NaNs aside. Built only with HVD_P3_WITH_CUDA. Any thread may call it.
#ifndef HVD_P3_DEVICE_CUDA_SCALE_H_
#define HVD_P3_DEVICE_CUDA_SCALE_H_

#include <vector>

#include "core/status.h"
#include "core/types.h"
#include "transport/transport.h"

namespace hvd_p3 {

// Loads the kernels on the current device. Otherwise CUDA does so when one is first launched, and
// may wait for all that runs on the device.
Status LoadCudaScale();

// Enqueues output[i] = input[i] * factor, for all segments, on `stream`, a cudaStream_t of the
// current device. `output` may equal `input`. Some dozens of segments share one launch.
Status CudaScale(const std::vector<Segment>& segments, DataType dtype, double factor, void* stream);

}  // namespace hvd_p3

#endif  // HVD_P3_DEVICE_CUDA_SCALE_H_
