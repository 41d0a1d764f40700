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

void LaunchFilling(cudaStream_t stream, int64_t microseconds, int waves) {
  constexpr int kThreads = 1024;  // as many as a block can have: no other block finds a place
  int processors = 0;
  int blocks = 0;
  Must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0),
       "cudaDeviceGetAttribute");
  Must(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Busy, kThreads, 0),
       "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  Busy<<<static_cast<unsigned int>(processors * blocks * waves), kThreads, 0, stream>>>(
      1000 * static_cast<uint64_t>(microseconds));
  Must(cudaGetLastError(), "the launch of a kernel");
}

}  // namespace hvd_p3
