#include "core/arithmetic.h"

#include <cstring>

namespace hvd_p3 {
namespace {

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Each codec turns a stored element into the type it is computed in, and back.
template <typename T>
struct Native {
  using Stored = T;
  using Computed = T;
  static T Load(T value) { return value; }
  static T Store(T value) { return value; }
};

struct Half {
  using Stored = uint16_t;
  using Computed = float;
  static float Load(uint16_t bits) { return Float16ToFloat(bits); }
  static uint16_t Store(float value) { return FloatToFloat16(value); }
};

struct Brain {
  using Stored = uint16_t;
  using Computed = float;
  static float Load(uint16_t bits) { return BFloat16ToFloat(bits); }
  static uint16_t Store(float value) { return FloatToBFloat16(value); }
};

template <typename Function>
void Dispatch(DataType dtype, Function&& function) {
  switch (dtype) {
    case DataType::kFloat16:
      return function(Half{});
    case DataType::kBFloat16:
      return function(Brain{});
    case DataType::kFloat32:
      return function(Native<float>{});
    case DataType::kFloat64:
      return function(Native<double>{});
    case DataType::kInt32:
      return function(Native<int32_t>{});
    case DataType::kInt64:
      return function(Native<int64_t>{});
  }
}

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

// The conversion of a float64 outside the integer's range is undefined in C++; saturate instead.
template <typename T>
T Product(T value, double factor) {
  return static_cast<T>(static_cast<double>(value) * factor);
}
template <typename T>
T SaturatedProduct(T value, double factor, double low, double high) {
  const double product = static_cast<double>(value) * factor;
  if (!(product > low)) return product <= low ? static_cast<T>(low) : T{0};
  if (product >= high) return static_cast<T>(~(T{1} << (sizeof(T) * 8 - 1)));
  return static_cast<T>(product);
}
int32_t Product(int32_t value, double factor) {
  return SaturatedProduct<int32_t>(value, factor, -0x1p31, 0x1p31);
}
int64_t Product(int64_t value, double factor) {
  return SaturatedProduct<int64_t>(value, factor, -0x1p63, 0x1p63);
}

}  // namespace

float Float16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return FloatOf(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return FloatOf(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t FloatToFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity, or is infinite
  if (magnitude < 0x38800000u) {                        // subnormal or zero in float16
    // Adding 0.5 puts the unit of the last place at 2^-24, so the hardware rounds to nearest even.
    const float shifted = FloatOf(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(BitsOf(shifted) - BitsOf(0.5f));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

float BFloat16ToFloat(uint16_t bits) { return FloatOf(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void AddInto(DataType dtype, const void* values, void* total, int64_t count) {
  Dispatch(dtype, [&](auto codec) {
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
  Dispatch(dtype, [&](auto codec) {
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
