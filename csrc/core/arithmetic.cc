#include "core/arithmetic.h"

#include "core/element.h"

namespace hvd_p3 {
namespace {

// Signed overflow wraps, as in NumPy and MPI implementations, instead of being undefined.
template <typename T>
T Sum(T a, T b) {
  return a + b;
}
int32_t Sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
int64_t Sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

}  // namespace

void AddInto(DataType dtype, const void* values, void* total, int64_t count) {
  WithCodec(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    using Stored = typename Codec::Stored;
    const Stored* source = static_cast<const Stored*>(values);
    Stored* target = static_cast<Stored*>(total);
    for (int64_t i = 0; i < count; ++i) {
      target[i] = Codec::Store(Sum(Codec::Load(target[i]), Codec::Load(source[i])));
    }
  });
}

void Scale(DataType dtype, const void* input, void* output, int64_t count, double factor) {
  const float factor32 = static_cast<float>(factor);
  if (dtype == DataType::kFloat32 && static_cast<double>(factor32) == factor) {
    // The product of two float32 is exact in float64, so rounding it is what a float32
    // multiplication does: the same bits in half the time.
    const float* source = static_cast<const float*>(input);
    float* target = static_cast<float*>(output);
    for (int64_t i = 0; i < count; ++i) target[i] = source[i] * factor32;
    return;
  }
  WithCodec(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    using Stored = typename Codec::Stored;
    const Stored* source = static_cast<const Stored*>(input);
    Stored* target = static_cast<Stored*>(output);
    for (int64_t i = 0; i < count; ++i) {
      target[i] = Codec::Store(Product(Codec::Load(source[i]), factor));
    }
  });
}

}  // namespace hvd_p3
