// The priority queue of slices that are globally ready and not yet started. Owned and used by the
// engine thread alone.
#ifndef HVD_P3_CORE_SLICE_QUEUE_H_
#define HVD_P3_CORE_SLICE_QUEUE_H_

#include <cstdint>
#include <queue>
#include <tuple>
#include <vector>

namespace hvd_p3 {

// The total order of invariant I2: smaller starts first. `tensor` is the agreed id of the slice's
// first member and `offset` its first element, so no two slices compare equal.
struct SliceKey {
  int64_t priority = 0;
  int64_t tensor = 0;
  int64_t offset = 0;

  friend bool operator<(const SliceKey& a, const SliceKey& b) {
    return std::tie(a.priority, a.tensor, a.offset) < std::tie(b.priority, b.tensor, b.offset);
  }
};

struct QueuedSlice {
  SliceKey key;
  int64_t group = 0;  // index of the slice's agreed group
  int64_t slice = 0;  // index of the slice in the group's plan
  int64_t bytes = 0;
};

class SliceQueue {
 public:
  bool empty() const { return heap_.empty(); }
  const QueuedSlice& top() const { return heap_.top(); }
  void push(const QueuedSlice& slice) { heap_.push(slice); }
  void pop() { heap_.pop(); }

 private:
  struct Later {
    bool operator()(const QueuedSlice& a, const QueuedSlice& b) const { return b.key < a.key; }
  };
  std::priority_queue<QueuedSlice, std::vector<QueuedSlice>, Later> heap_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_SLICE_QUEUE_H_
