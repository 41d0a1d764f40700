// How one element of each reducible type is stored and scaled, for host and device code: both give
// the same bits, NaNs aside, whose payload is the processor's choice. Pure functions; any thread
// may call them. Buffers are for core/arithmetic.h and device/cuda_scale.h.
#ifndef HVD_P3_CORE_ELEMENT_H_
#define HVD_P3_CORE_ELEMENT_H_

#include <cstdint>
#include <cstring>

#include "core/types.h"

#ifdef __CUDACC__
#define HVD_P3_HOST_DEVICE __host__ __device__
#else
#define HVD_P3_HOST_DEVICE
#endif

namespace hvd_p3 {

HVD_P3_HOST_DEVICE inline uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

HVD_P3_HOST_DEVICE inline float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

HVD_P3_HOST_DEVICE inline float Float16ToFloat(uint16_t bits) {
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

HVD_P3_HOST_DEVICE inline uint16_t FloatToFloat16(float value) {
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

HVD_P3_HOST_DEVICE inline float BFloat16ToFloat(uint16_t bits) {
  return FloatOf(static_cast<uint32_t>(bits) << 16);
}

HVD_P3_HOST_DEVICE inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Each codec turns a stored element into the type it is computed in, and back.
template <typename T>
struct NativeCodec {
  using Stored = T;
  HVD_P3_HOST_DEVICE static T Load(T value) { return value; }
  HVD_P3_HOST_DEVICE static T Store(T value) { return value; }
};

struct Float16Codec {
  using Stored = uint16_t;
  HVD_P3_HOST_DEVICE static float Load(uint16_t bits) { return Float16ToFloat(bits); }
  HVD_P3_HOST_DEVICE static uint16_t Store(float value) { return FloatToFloat16(value); }
};

struct BFloat16Codec {
  using Stored = uint16_t;
  HVD_P3_HOST_DEVICE static float Load(uint16_t bits) { return BFloat16ToFloat(bits); }
  HVD_P3_HOST_DEVICE static uint16_t Store(float value) { return FloatToBFloat16(value); }
};

// Calls `function` with the codec of `dtype`.
template <typename Function>
auto WithCodec(DataType dtype, Function&& function) {
  switch (dtype) {
    case DataType::kFloat16:
      return function(Float16Codec{});
    case DataType::kBFloat16:
      return function(BFloat16Codec{});
    case DataType::kFloat64:
      return function(NativeCodec<double>{});
    case DataType::kInt32:
      return function(NativeCodec<int32_t>{});
    case DataType::kInt64:
      return function(NativeCodec<int64_t>{});
    case DataType::kFloat32:
      break;
  }
  return function(NativeCodec<float>{});
}

// Elements are multiplied in float64. The conversion of a float64 outside an integer's range is
// undefined in C++; saturate instead.
template <typename T>
HVD_P3_HOST_DEVICE T SaturatedProduct(T value, double factor, double low, double high) {
  const double product = static_cast<double>(value) * factor;
  if (!(product > low)) return product <= low ? static_cast<T>(low) : T{0};
  if (product >= high) return static_cast<T>(~(T{1} << (sizeof(T) * 8 - 1)));
  return static_cast<T>(product);
}
template <typename T>
HVD_P3_HOST_DEVICE T Product(T value, double factor) {
  return static_cast<T>(static_cast<double>(value) * factor);
}
HVD_P3_HOST_DEVICE inline int32_t Product(int32_t value, double factor) {
  return SaturatedProduct<int32_t>(value, factor, -0x1p31, 0x1p31);
}
HVD_P3_HOST_DEVICE inline int64_t Product(int64_t value, double factor) {
  return SaturatedProduct<int64_t>(value, factor, -0x1p63, 0x1p63);
}

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_ELEMENT_H_
