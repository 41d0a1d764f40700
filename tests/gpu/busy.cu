#include <cuda_runtime.h>

#include "device.h"

namespace hvd_p3 {
namespace {

__device__ uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void Busy(uint64_t nanoseconds) {
  const uint64_t end = Nanoseconds() + nanoseconds;
  while (Nanoseconds() < end) {
  }
}

}  // namespace

void LaunchBusy(cudaStream_t stream, int64_t microseconds) {
  Busy<<<1, 1, 0, stream>>>(1000 * static_cast<uint64_t>(microseconds));
  Must(cudaGetLastError(), "the launch of a kernel");
}

}  // namespace hvd_p3
