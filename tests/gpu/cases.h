// Tensors that the checks reduce. Used by the main thread.
#ifndef HVD_P3_TESTS_GPU_CASES_H_
#define HVD_P3_TESTS_GPU_CASES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/types.h"
#include "device.h"

namespace hvd_p3 {

constexpr int64_t kMiB = 1 << 20;

// A tensor with its buffers.
struct Case {
  TensorSpec spec;
  std::vector<char> host;
  std::unique_ptr<DeviceMemory> input;
  std::unique_ptr<DeviceMemory> output;
};

Case MakeCase(const std::string& name, DataType dtype, int64_t count, int64_t priority);

// What one rank gets.
std::vector<char> Expected(const Case& of);

// For example "0.250 ms".
std::string Milliseconds(int64_t nanoseconds);

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_GPU_CASES_H_
