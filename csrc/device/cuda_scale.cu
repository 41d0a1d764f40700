#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/element.h"
#include "device/cuda_scale.h"
#include "device/cuda_support.h"

namespace hvd_p3 {
namespace {

constexpr int kThreads = 256;
// Per segment; threads of longer ones take several elements. A slice is short, and what scales it
// should leave the rest of the GPU to the program.
constexpr int64_t kMostBlocks = 64;
// Segments of a launch. Their addresses are passed as arguments of the kernel, at most 4 KiB.
constexpr size_t kMostSegments = 64;

struct Segments {
  Segment of[kMostSegments];
};

// One column of blocks for each segment. `Factor` is double, or float where that gives the same
// bits: see Scale in core/arithmetic.cc.
template <typename Codec, typename Factor>
__global__ void ScaleSegments(const Segments segments, Factor factor) {
  using Stored = typename Codec::Stored;
  const Segment segment = segments.of[blockIdx.y];
  // Neither is __restrict__, since they may be equal.
  const Stored* input = static_cast<const Stored*>(segment.input);
  Stored* output = static_cast<Stored*>(segment.output);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < segment.count;
       i += step) {
    if constexpr (std::is_same_v<Factor, float>) {
      // An intrinsic, which the compiler does not merge with an addition of the rounding after it.
      output[i] = Codec::Store(__fmul_rn(Codec::Load(input[i]), factor));
    } else {
      output[i] = Codec::Store(Product(Codec::Load(input[i]), factor));
    }
  }
}

template <typename Codec, typename Factor>
const void* KernelOf() {
  return reinterpret_cast<const void*>(&ScaleSegments<Codec, Factor>);
}

template <typename Codec>
constexpr bool kComputedInFloat = std::is_same_v<decltype(Codec::Load({})), float>;

template <typename Codec, typename Factor>
Status Launch(const Segments& segments, size_t count, int64_t longest, Factor factor,
              cudaStream_t stream) {
  const int64_t blocks = std::min<int64_t>((longest + kThreads - 1) / kThreads, kMostBlocks);
  const dim3 grid(static_cast<unsigned int>(blocks), static_cast<unsigned int>(count));
  void* arguments[] = {const_cast<Segments*>(&segments), &factor};
  return FromCuda(
      cudaLaunchKernel(KernelOf<Codec, Factor>(), grid, dim3(kThreads), arguments, 0, stream),
      "cudaLaunchKernel");
}

Status ScaleBatch(const Segments& segments, size_t count, int64_t longest, DataType dtype,
                  double factor, cudaStream_t stream) {
  return WithCodec(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    if constexpr (kComputedInFloat<Codec>) {
      const float factor32 = static_cast<float>(factor);
      if (static_cast<double>(factor32) == factor) {
        return Launch<Codec>(segments, count, longest, factor32, stream);
      }
    }
    return Launch<Codec>(segments, count, longest, factor, stream);
  });
}

Status Load(const void* kernel) {
  cudaFuncAttributes attributes{};
  return FromCuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
}

}  // namespace

Status LoadCudaScale() {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32,
                               DataType::kFloat64, DataType::kInt32, DataType::kInt64}) {
    const Status status = WithCodec(dtype, [](auto codec) {
      using Codec = decltype(codec);
      if constexpr (kComputedInFloat<Codec>) {
        const Status with_float = Load(KernelOf<Codec, float>());
        if (!with_float.ok()) return with_float;
      }
      return Load(KernelOf<Codec, double>());
    });
    if (!status.ok()) return status;
  }
  return {};
}

Status CudaScale(const std::vector<Segment>& segments, DataType dtype, double factor,
                 void* stream) {
  Segments batch;
  size_t count = 0;
  int64_t longest = 0;
  Status status;
  const auto flush = [&] {
    if (count == 0 || !status.ok()) return;
    status = ScaleBatch(batch, count, longest, dtype, factor, static_cast<cudaStream_t>(stream));
    count = 0;
    longest = 0;
  };
  for (const Segment& segment : segments) {
    if (segment.count == 0) continue;
    batch.of[count++] = segment;
    longest = std::max(longest, segment.count);
    if (count == kMostSegments) flush();
  }
  flush();
  return status;
}

}  // namespace hvd_p3
