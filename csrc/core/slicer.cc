#include "core/slicer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace hvd_p3 {
namespace {

// Cuts one tensor into the fewest pieces that fit, of nearly equal length: equal pieces leave no
// tiny last slice that would pay a whole collective's latency.
void Cut(int32_t index, const TensorSpec& tensor, int64_t slice_bytes, std::vector<Slice>* slices) {
  const int64_t element_bytes = ElementBytes(tensor.dtype);
  const int64_t total = tensor.num_elements();
  const int64_t most = std::max<int64_t>(1, slice_bytes / element_bytes);
  const int64_t pieces = (total + most - 1) / most;
  const int64_t shortest = total / pieces;
  const int64_t longer = total % pieces;  // this many pieces have one element more
  int64_t offset = 0;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t count = shortest + (i < longer ? 1 : 0);
    slices->push_back({{{index, offset, count}}, count * element_bytes});
    offset += count;
  }
}

}  // namespace

std::vector<Slice> PlanSlices(const std::vector<TensorSpec>& tensors, int64_t slice_bytes) {
  using FusionKey = std::tuple<DataType, ReduceOp, double, double>;
  std::vector<int32_t> by_priority(tensors.size());
  std::iota(by_priority.begin(), by_priority.end(), 0);
  std::stable_sort(by_priority.begin(), by_priority.end(), [&tensors](int32_t a, int32_t b) {
    return tensors[static_cast<size_t>(a)].priority < tensors[static_cast<size_t>(b)].priority;
  });

  std::vector<Slice> slices;
  std::map<FusionKey, size_t> open_slice;  // index into `slices` of the one still being filled
  for (const int32_t index : by_priority) {
    const TensorSpec& tensor = tensors[static_cast<size_t>(index)];
    if (tensor.bytes() == 0) {
      slices.push_back({{{index, 0, 0}}, 0});
      continue;
    }
    if (tensor.bytes() >= slice_bytes) {
      Cut(index, tensor, slice_bytes, &slices);
      continue;
    }
    const FusionKey key{tensor.dtype, tensor.op, tensor.prescale, tensor.postscale};
    const auto open = open_slice.find(key);
    if (open == open_slice.end() || slices[open->second].bytes + tensor.bytes() > slice_bytes) {
      open_slice[key] = slices.size();
      slices.emplace_back();
    }
    Slice& slice = slices[open_slice[key]];
    slice.members.push_back({index, 0, tensor.num_elements()});
    slice.bytes += tensor.bytes();
  }
  return slices;
}

}  // namespace hvd_p3
