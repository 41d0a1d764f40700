// Elementwise scaling of buffers in the memory of an NVIDIA GPU, with the results of Scale in
// core/arithmetic.h. Built only with HVD_P3_WITH_CUDA. Any thread may call it.
#ifndef HVD_P3_DEVICE_CUDA_SCALE_H_
#define HVD_P3_DEVICE_CUDA_SCALE_H_

#include <cstdint>

#include "core/status.h"
#include "core/types.h"

namespace hvd_p3 {

// Enqueues output[i] = input[i] * factor on `stream`, a cudaStream_t of the current device.
// `output` may equal `input`.
Status CudaScale(DataType dtype, const void* input, void* output, int64_t count, double factor,
                 void* stream);

}  // namespace hvd_p3

#endif  // HVD_P3_DEVICE_CUDA_SCALE_H_
