// What the CUDA sources share: statuses from CUDA's return codes, and a GPU made current for a
// while. Built only with HVD_P3_WITH_CUDA. Any thread may call these functions.
#ifndef HVD_P3_DEVICE_CUDA_SUPPORT_H_
#define HVD_P3_DEVICE_CUDA_SUPPORT_H_

#include <cuda_runtime_api.h>

#include "core/status.h"

namespace hvd_p3 {

Status FromCuda(cudaError_t code, const char* call);

// Makes the primary context of a GPU current on this thread for as long as the object lives. All
// CUDA calls of hvd_p3 are made within one, also those that take the GPU from a stream or an event:
// on a thread without a context CUDA would make one on GPU 0, which costs that GPU hundreds of MB
// for every process. Whatever was current before, often nothing, is current again afterwards;
// cudaSetDevice cannot restore that.
class ScopedCudaDevice {
 public:
  explicit ScopedCudaDevice(int device_index);
  ~ScopedCudaDevice();
  ScopedCudaDevice(const ScopedCudaDevice&) = delete;
  ScopedCudaDevice& operator=(const ScopedCudaDevice&) = delete;

  // Not OK: the GPU is not current; make no CUDA call.
  const Status& status() const { return status_; }

 private:
  Status status_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_DEVICE_CUDA_SUPPORT_H_
