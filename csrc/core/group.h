// A declared group of tensors and what this rank knows about it. Created by DeclareGroup on any
// thread; the fields below the line are owned by the engine thread afterwards.
#ifndef HVD_P3_CORE_GROUP_H_
#define HVD_P3_CORE_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/declaration.h"
#include "core/event.h"
#include "core/slicer.h"
#include "core/status.h"
#include "core/types.h"
#include "device/stream_event.h"

namespace hvd_p3 {

// Identifies a declared tensor on this rank; not the same number on other ranks.
using TensorHandle = int64_t;

// One all-reduce of a declared tensor.
struct Submission {
  const void* input = nullptr;
  void* output = nullptr;  // as large as the input: the same buffer, or not overlapping it
  Device device;
  std::shared_ptr<Event> ready;  // null: the input is complete already
  // Keeps both buffers alive. Released after `done`, or never, if the engine fails while a
  // collective that cannot be cancelled may still write to the output.
  std::shared_ptr<void> buffers;
  // For device memory, optional. Called at most once, on the engine thread and before `done`, when
  // the whole reduction is enqueued: work behind the event finds the output complete, unless `done`
  // reports an error later. From then on the tensor may be submitted again, with other buffers.
  std::function<void(const std::shared_ptr<StreamEvent>&)> enqueued;
  // Called exactly once, on the engine thread, or by Submit itself if the engine has stopped.
  std::function<void(const Status&)> done;
};

// Bytes of the buffers of a submission of a tensor of so many bytes.
inline int64_t BufferBytes(const Submission& submission, int64_t bytes) {
  return submission.input == submission.output ? bytes : 2 * bytes;
}

struct Group;

struct Tensor {
  Group* group = nullptr;
  int32_t index = 0;        // in the group
  TensorHandle handle = 0;  // set when it is declared, then constant
  // ---------------------------------------------------------------------------------------------
  enum class State {
    kIdle,       // nothing submitted
    kAwaiting,   // submitted; the device has not written the input yet
    kReady,      // the input is complete on this rank
    kScheduled,  // globally ready: the schedule of all ranks holds its slices
  };
  State state = State::kIdle;
  Submission submission;
  int64_t slices_left = 0;
  int64_t slices_to_enqueue = 0;   // on the device's stream
  bool enqueued = false;           // reported to the submission
  std::optional<Submission> next;  // submitted since then
  int64_t submitted_ns = 0;        // when the submission was admitted
  bool warned = false;             // of this submission's wait
  size_t unfinished_index = 0;     // in the engine's list, while submitted
};

struct Group {
  GroupDeclaration declaration;
  std::vector<Tensor> tensors;  // never resized: tensors are referred to by address
  // ---------------------------------------------------------------------------------------------
  bool sent = false;             // the other ranks have received this rank's declaration
  Status failure;                // not OK: the ranks disagree, nothing of this group can be reduced
  int64_t first_agreed_id = -1;  // agreed id of the first tensor, -1 before all ranks agreed
  std::vector<Slice> slices;     // planned once agreed
  std::vector<std::vector<int64_t>> slices_of_tensor;

  explicit Group(GroupDeclaration declared);
  // Computes `slices` and `slices_of_tensor`. Only while nothing of the group is ready or in
  // flight.
  void Plan(int64_t slice_bytes);
  const TensorSpec& spec(const Tensor& tensor) const {
    return declaration.tensors[static_cast<size_t>(tensor.index)];
  }
  bool agreed() const { return first_agreed_id >= 0; }
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_GROUP_H_
