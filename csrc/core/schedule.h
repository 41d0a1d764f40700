// Decides which slices start next. Every rank runs the same Schedule on the same inputs, which are
// results of negotiation rounds and nothing else, so all ranks start the same collectives in the
// same order (I1), the most urgent globally ready slice first (I2), within the credit (I3).
// Used by the engine thread alone.
#ifndef HVD_P3_CORE_SCHEDULE_H_
#define HVD_P3_CORE_SCHEDULE_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/group.h"
#include "core/slice_queue.h"

namespace hvd_p3 {

// At most this many slices are in flight; each has a bit in a negotiation word.
constexpr int kWindow = 64;

struct ScheduledSlice {
  int slot = 0;  // bit of the slice in the window
  Group* group = nullptr;
  int64_t slice = 0;
  SliceKey key;
  int64_t bytes = 0;
  int64_t number = 0;  // of slices started before; the same on all ranks
};

class Schedule {
 public:
  explicit Schedule(int64_t credit_bytes) : credit_bytes_(credit_bytes) {}

  // A tensor became globally ready. Returns the slices that are complete with it.
  std::vector<QueuedSlice> TensorReady(Tensor* tensor);

  // All ranks have finished the slices whose bits are set; others' bits are ignored.
  void Finished(uint64_t slots);

  // The slices to start now, in order.
  std::vector<ScheduledSlice> StartNext();

  // No further tensor will become globally ready. Takes the members that are not ready out of the
  // slices that wait for them, and returns those slices.
  std::vector<QueuedSlice> ReleaseIncomplete();

  // Other settings from now on. The groups' slices may have changed. Only while quiet.
  void Restart(int64_t credit_bytes);

  // Nothing is queued or waits for other members of its slice, and all is finished on all ranks.
  bool quiet() const;

  // Nothing is queued, and all ranks have finished all that was started.
  bool idle() const { return queue_.empty() && occupied_ == 0; }

 private:
  struct GroupProgress {
    Group* group = nullptr;
    std::vector<std::vector<int32_t>> ready;  // by slice: members, until all are globally ready
  };

  QueuedSlice Enqueue(const Group& group, int64_t slice);

  int64_t credit_bytes_;
  SliceQueue queue_;
  std::map<int64_t, GroupProgress> groups_;  // by the agreed id of the first tensor
  std::array<int64_t, kWindow> slot_bytes_{};
  uint64_t occupied_ = 0;  // bits of slots whose slice is not finished on all ranks
  int64_t bytes_in_flight_ = 0;
  int64_t slices_started_ = 0;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_SCHEDULE_H_
