#include "core/group.h"

#include <utility>

namespace hvd_p3 {

Group::Group(GroupDeclaration declared)
    : declaration(std::move(declared)), tensors(declaration.tensors.size()) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].group = this;
    tensors[i].index = static_cast<int32_t>(i);
  }
}

void Group::Plan(int64_t slice_bytes) {
  // What is fused does not change with the settings in force: it must be submitted together.
  slices = PlanSlices(declaration.tensors, slice_bytes, FusionBytes(declaration.slice_bytes));
  slices_of_tensor.assign(tensors.size(), {});
  for (size_t i = 0; i < slices.size(); ++i) {
    for (const SliceMember& member : slices[i].members) {
      slices_of_tensor[static_cast<size_t>(member.tensor)].push_back(static_cast<int64_t>(i));
    }
  }
}

}  // namespace hvd_p3
