#include "core/slicer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

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

// The tensors' indices, the most urgent first.
std::vector<int32_t> ByPriority(const std::vector<TensorSpec>& tensors) {
  std::vector<int32_t> indices(tensors.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::stable_sort(indices.begin(), indices.end(), [&tensors](int32_t a, int32_t b) {
    return tensors[static_cast<size_t>(a)].priority < tensors[static_cast<size_t>(b)].priority;
  });
  return indices;
}

}  // namespace

std::vector<std::vector<int32_t>> FuseTensors(const std::vector<TensorSpec>& tensors,
                                              int64_t fusion_bytes) {
  using FusionKey = std::tuple<DataType, ReduceOp, double, double>;
  struct OpenSet {
    size_t set = 0;
    int64_t bytes = 0;
  };
  std::vector<std::vector<int32_t>> sets;
  std::map<FusionKey, OpenSet> open;  // the set that is still being filled
  for (const int32_t index : ByPriority(tensors)) {
    const TensorSpec& tensor = tensors[static_cast<size_t>(index)];
    if (tensor.bytes() == 0 || tensor.bytes() >= fusion_bytes) {
      sets.push_back({index});
      continue;
    }
    const FusionKey key{tensor.dtype, tensor.op, tensor.prescale, tensor.postscale};
    const auto known = open.find(key);
    if (known == open.end() || known->second.bytes + tensor.bytes() > fusion_bytes) {
      open[key] = {sets.size(), 0};
      sets.emplace_back();
    }
    OpenSet& filled = open[key];
    sets[filled.set].push_back(index);
    filled.bytes += tensor.bytes();
  }
  return sets;
}

std::vector<Slice> PlanSlices(const std::vector<TensorSpec>& tensors, int64_t slice_bytes,
                              int64_t fusion_bytes) {
  std::vector<Slice> slices;
  for (const std::vector<int32_t>& set : FuseTensors(tensors, fusion_bytes)) {
    const TensorSpec& first = tensors[static_cast<size_t>(set.front())];
    if (set.size() == 1 && first.bytes() > 0) {
      Cut(set.front(), first, slice_bytes, &slices);
      continue;
    }
    Slice slice;
    for (const int32_t index : set) {
      const TensorSpec& tensor = tensors[static_cast<size_t>(index)];
      slice.members.push_back({index, 0, tensor.num_elements()});
      slice.bytes += tensor.bytes();
    }
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace hvd_p3
