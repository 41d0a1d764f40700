// Elementwise sums and scaling of host buffers of every reducible element type. float16 and
// bfloat16 are computed in float32 and rounded to nearest even. Pure functions; any thread may call
// them.
#ifndef HVD_P3_CORE_ARITHMETIC_H_
#define HVD_P3_CORE_ARITHMETIC_H_

#include <cstdint>

#include "core/types.h"

namespace hvd_p3 {

// total[i] += values[i] for `count` elements.
void AddInto(DataType dtype, const void* values, void* total, int64_t count);

// output[i] = input[i] * factor for `count` elements; `output` may equal `input`. Integers are
// multiplied in float64 and truncated toward zero, as Horovod does.
void Scale(DataType dtype, const void* input, void* output, int64_t count, double factor);

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_ARITHMETIC_H_
