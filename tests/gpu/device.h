// The GPU as the checks use it: memory, a compute stream as TensorFlow has one, and a kernel that
// keeps it busy. Errors are exceptions, which end a check. Used by the main thread, on GPU 0.
#ifndef HVD_P3_TESTS_GPU_DEVICE_H_
#define HVD_P3_TESTS_GPU_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/status.h"
#include "device/cuda_support.h"

namespace hvd_p3 {

inline void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}
inline void Must(cudaError_t code, const char* call) { Must(FromCuda(code, call)); }

// Occupies one multiprocessor until `microseconds` have passed since it began.
void LaunchBusy(cudaStream_t stream, int64_t microseconds);

// Occupies all multiprocessors, so that no kernel begins: `waves` times as many blocks as find a
// place, each for `microseconds`. Between waves the GPU takes blocks of streams of higher priority
// first.
void LaunchFilling(cudaStream_t stream, int64_t microseconds, int waves);

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    Must(cudaMalloc(&data_, bytes > 0 ? bytes : 1), "cudaMalloc");
  }
  explicit DeviceMemory(const std::vector<char>& host) : DeviceMemory(host.size()) {
    Must(cudaMemcpy(data_, host.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  char* data() const { return static_cast<char*>(data_); }

  // Waits for all streams that wait for CUDA's default stream, which hvd_p3's does not.
  std::vector<char> ToHost() const {
    std::vector<char> host(bytes_);
    Must(cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  const size_t bytes_;
  void* data_ = nullptr;
};

// Host memory to which the GPU copies without the host in between.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes) : bytes_(bytes) {
    Must(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    std::memset(data_, 0, bytes);
  }
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  void* data() const { return data_; }
  std::vector<char> bytes() const {
    const char* const begin = static_cast<const char*>(data_);
    return std::vector<char>(begin, begin + bytes_);
  }

 private:
  const size_t bytes_;
  void* data_ = nullptr;
};

class ComputeStream {
 public:
  ComputeStream() {
    Must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~ComputeStream() { cudaStreamDestroy(stream_); }
  ComputeStream(const ComputeStream&) = delete;
  ComputeStream& operator=(const ComputeStream&) = delete;

  cudaStream_t get() const { return stream_; }
  bool busy() const { return cudaStreamQuery(stream_) == cudaErrorNotReady; }
  void Synchronize() const { Must(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_GPU_DEVICE_H_
