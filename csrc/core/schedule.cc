#include "core/schedule.h"

#include <algorithm>

namespace hvd_p3 {

std::vector<QueuedSlice> Schedule::TensorReady(Tensor* tensor) {
  Group* group = tensor->group;
  GroupProgress& progress = groups_[group->first_agreed_id];
  if (progress.group == nullptr) {
    progress.group = group;
    progress.ready.resize(group->slices.size());
  }
  std::vector<QueuedSlice> complete;
  for (int64_t index : group->slices_of_tensor[static_cast<size_t>(tensor->index)]) {
    std::vector<int32_t>& ready = progress.ready[static_cast<size_t>(index)];
    ready.push_back(tensor->index);
    if (ready.size() < group->slices[static_cast<size_t>(index)].members.size()) continue;
    ready.clear();  // for the next step
    complete.push_back(Enqueue(*group, index));
  }
  return complete;
}

std::vector<QueuedSlice> Schedule::ReleaseIncomplete() {
  std::vector<QueuedSlice> released;
  for (auto& [id, progress] : groups_) {
    Group& group = *progress.group;
    for (size_t i = 0; i < progress.ready.size(); ++i) {
      std::vector<int32_t>& ready = progress.ready[i];
      if (ready.empty()) continue;
      Slice& slice = group.slices[i];
      const auto absent = [&ready](const SliceMember& member) {
        return std::find(ready.begin(), ready.end(), member.tensor) == ready.end();
      };
      slice.members.erase(std::remove_if(slice.members.begin(), slice.members.end(), absent),
                          slice.members.end());
      slice.bytes = 0;
      for (const SliceMember& member : slice.members) {
        const TensorSpec& spec = group.declaration.tensors[static_cast<size_t>(member.tensor)];
        slice.bytes += member.count * ElementBytes(spec.dtype);
      }
      ready.clear();
      released.push_back(Enqueue(group, static_cast<int64_t>(i)));
    }
  }
  return released;
}

bool Schedule::quiet() const {
  if (!idle()) return false;
  for (const auto& [id, progress] : groups_) {
    for (const std::vector<int32_t>& ready : progress.ready) {
      if (!ready.empty()) return false;
    }
  }
  return true;
}

void Schedule::Restart(int64_t credit_bytes) {
  credit_bytes_ = credit_bytes;
  groups_.clear();
}

QueuedSlice Schedule::Enqueue(const Group& group, int64_t slice) {
  const SliceMember& first = group.slices[static_cast<size_t>(slice)].members.front();
  const QueuedSlice queued{{group.declaration.tensors[static_cast<size_t>(first.tensor)].priority,
                            group.first_agreed_id + first.tensor, first.offset},
                           group.first_agreed_id,
                           slice,
                           group.slices[static_cast<size_t>(slice)].bytes};
  queue_.push(queued);
  return queued;
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
    const int slot = __builtin_ctzll(~occupied_);
    occupied_ |= uint64_t{1} << slot;
    slot_bytes_[static_cast<size_t>(slot)] = next.bytes;
    bytes_in_flight_ += next.bytes;
    started.push_back(
        {slot, groups_.at(next.group).group, next.slice, next.key, next.bytes, slices_started_++});
  }
  return started;
}

}  // namespace hvd_p3
