// Cuts the tensors of a group into slices, the units of communication, and fuses small tensors.
// A pure function of the tensors and the slice size (invariant I7: never of timing), so every rank
// computes the same plan without asking. Any thread may call it.
#ifndef HVD_P3_CORE_SLICER_H_
#define HVD_P3_CORE_SLICER_H_

#include <cstdint>
#include <vector>

#include "core/types.h"

namespace hvd_p3 {

// A contiguous range of elements of the tensor at this index of its group.
struct SliceMember {
  int32_t tensor = 0;
  int64_t offset = 0;  // elements
  int64_t count = 0;   // elements
};

// One member cut from a large tensor, or several whole small tensors of one dtype, operation and
// scale, in order of priority. An empty tensor has a slice of its own with no elements, so that it
// is negotiated like any other.
struct Slice {
  std::vector<SliceMember> members;
  int64_t bytes = 0;
};

// Small tensors are fused up to this length at most, and up to slice_bytes as it was declared if
// that is shorter.
constexpr int64_t kMostFusionBytes = 120 * 1024;
inline int64_t FusionBytes(int64_t declared_slice_bytes) {
  return declared_slice_bytes < kMostFusionBytes ? declared_slice_bytes : kMostFusionBytes;
}

// Divides the tensors into sets, each of which is reduced as one slice, or cut if it is one large
// tensor. Returns indices of `tensors`. All tensors of a set must be submitted or none.
std::vector<std::vector<int32_t>> FuseTensors(const std::vector<TensorSpec>& tensors,
                                              int64_t fusion_bytes);

// Args:
//   tensors: the group, in the order in which all ranks declare it.
//   slice_bytes: upper bound of a slice of one tensor in bytes, at least 1; a slice holds at least
//     one element.
//   fusion_bytes: upper bound of a slice of several tensors.
std::vector<Slice> PlanSlices(const std::vector<TensorSpec>& tensors, int64_t slice_bytes,
                              int64_t fusion_bytes);

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_SLICER_H_
