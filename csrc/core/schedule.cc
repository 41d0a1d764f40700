#include "core/schedule.h"

namespace hvd_p3 {

std::vector<QueuedSlice> Schedule::TensorReady(Tensor* tensor) {
  Group* group = tensor->group;
  GroupProgress& progress = groups_[group->first_agreed_id];
  if (progress.group == nullptr) {
    progress.group = group;
    for (const Slice& slice : group->slices) {
      progress.members_missing.push_back(static_cast<int64_t>(slice.members.size()));
    }
  }
  std::vector<QueuedSlice> complete;
  for (int64_t index : group->slices_of_tensor[static_cast<size_t>(tensor->index)]) {
    int64_t& missing = progress.members_missing[static_cast<size_t>(index)];
    if (--missing > 0) continue;
    const Slice& slice = group->slices[static_cast<size_t>(index)];
    const SliceMember& first = slice.members.front();
    missing = static_cast<int64_t>(slice.members.size());  // for the next step
    complete.push_back({{group->declaration.tensors[static_cast<size_t>(first.tensor)].priority,
                         group->first_agreed_id + first.tensor, first.offset},
                        group->first_agreed_id,
                        index,
                        slice.bytes});
    queue_.push(complete.back());
  }
  return complete;
}

void Schedule::Finished(uint64_t slots) {
  for (int slot = 0; slot < kWindow; ++slot) {
    const uint64_t bit = uint64_t{1} << slot;
    if ((slots & occupied_ & bit) == 0) continue;
    occupied_ &= ~bit;
    bytes_in_flight_ -= slot_bytes_[static_cast<size_t>(slot)];
  }
}

std::vector<ScheduledSlice> Schedule::StartNext() {
  std::vector<ScheduledSlice> started;
  while (!queue_.empty() && ~occupied_ != 0) {
    const QueuedSlice next = queue_.top();
    if (occupied_ != 0 && bytes_in_flight_ + next.bytes > credit_bytes_) break;
    queue_.pop();
    int slot = 0;
    while ((occupied_ >> slot) & 1) ++slot;
    occupied_ |= uint64_t{1} << slot;
    slot_bytes_[static_cast<size_t>(slot)] = next.bytes;
    bytes_in_flight_ += next.bytes;
    started.push_back({slot, groups_.at(next.group).group, next.slice, next.key, next.bytes});
  }
  return started;
}

}  // namespace hvd_p3
