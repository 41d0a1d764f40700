// Numbers to compute with on both host and GPU, and their comparison. Used by any thread.
#ifndef HVD_P3_TESTS_GPU_VALUES_H_
#define HVD_P3_TESTS_GPU_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/types.h"

namespace hvd_p3 {

constexpr DataType kAllTypes[] = {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32,
                                  DataType::kFloat64, DataType::kInt32,    DataType::kInt64};

// Elements of all bit patterns, in a random order that `seed` chooses: also infinities, subnormal
// numbers and NaNs.
std::vector<char> RandomBits(DataType dtype, int64_t count, uint64_t seed);

// How many elements differ in their bits. Two NaNs are equal, whatever their payload.
int64_t CountDifferent(DataType dtype, const std::vector<char>& a, const std::vector<char>& b);

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_GPU_VALUES_H_
