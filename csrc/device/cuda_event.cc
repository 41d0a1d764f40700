#include "device/cuda_event.h"

#include <cuda_runtime_api.h>

#include "device/cuda_support.h"

namespace hvd_p3 {
namespace {

class CudaEvent : public StreamEvent {
 public:
  // Takes over `event`, of the GPU with this index.
  CudaEvent(int device_index, cudaEvent_t event) : device_index_(device_index), event_(event) {}

  ~CudaEvent() override {
    const ScopedCudaDevice current(device_index_);
    // CUDA frees the event once it is reached. Nobody is left to be told of an error.
    if (current.status().ok()) cudaEventDestroy(event_);
  }

  Status Record(cudaStream_t stream) {
    return FromCuda(cudaEventRecord(event_, stream), "cudaEventRecord");
  }

  Status Test(bool* reached) override {
    const ScopedCudaDevice current(device_index_);
    if (!current.status().ok()) return current.status();
    const cudaError_t code = cudaEventQuery(event_);
    *reached = code == cudaSuccess;
    return code == cudaErrorNotReady ? Status() : FromCuda(code, "cudaEventQuery");
  }

  Status BlockStream(void* stream) override {
    const ScopedCudaDevice current(device_index_);
    if (!current.status().ok()) return current.status();
    return FromCuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_, 0),
                    "cudaStreamWaitEvent");
  }

 private:
  const int device_index_;
  const cudaEvent_t event_;
};

}  // namespace

Status RecordCudaEvent(int device_index, void* stream, std::shared_ptr<StreamEvent>* event) {
  const ScopedCudaDevice current(device_index);
  if (!current.status().ok()) return current.status();
  cudaEvent_t created = nullptr;
  // Without times an event costs the GPU less, and waiting for it too.
  Status status = FromCuda(cudaEventCreateWithFlags(&created, cudaEventDisableTiming),
                           "cudaEventCreateWithFlags");
  if (!status.ok()) return status;
  auto recorded = std::make_shared<CudaEvent>(device_index, created);
  status = recorded->Record(static_cast<cudaStream_t>(stream));
  if (status.ok()) *event = std::move(recorded);
  return status;
}

}  // namespace hvd_p3
