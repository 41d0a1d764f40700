// The TensorFlow resource behind one tensor: what was pushed and not yet pulled. Each tensor has a
// slot of its own as the input of its ops, so that TensorFlow's automatic control dependencies
// order only ops on the same tensor. Any thread may call any method.
#ifndef HVD_P3_TENSORFLOW_GRADIENT_SLOT_H_
#define HVD_P3_TENSORFLOW_GRADIENT_SLOT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/engine.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/tensor.h"

namespace hvd_p3 {

// The container of TensorFlow's resource manager in which all slots live, by name.
constexpr char kSlotContainer[] = "hvd-p3";

constexpr int64_t kAnyVersion = -1;

class GradientSlot : public tensorflow::ResourceBase {
 public:
  // What is reduced, into `output`: a buffer of the same type and shape on the same device, or the
  // gradient's own.
  struct Pushed {
    tensorflow::Tensor gradient;
    tensorflow::Tensor output;
    Device device;
    std::shared_ptr<Event> ready;  // of both tensors; null: they are
    // Kept for the pull: tensors such as the step's learning rate, and the number of the
    // hyper-parameters with which the step was traced.
    std::vector<tensorflow::Tensor> context;
    int64_t version = 0;
  };
  struct Pulled {
    absl::Status status{};
    tensorflow::Tensor reduced{};
    std::shared_ptr<StreamEvent> completion{};  // of `reduced`; null: it is complete
    std::vector<tensorflow::Tensor> context{};
    int64_t version = 0;
  };
  using PullDone = std::function<void(const Pulled&)>;
  using ConfirmDone = std::function<void(const absl::Status&)>;

  explicit GradientSlot(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  // Starts the all-reduce.
  absl::Status Push(const std::shared_ptr<Engine>& engine, TensorHandle handle,
                    const Pushed& pushed);

  // True from a push until the pull that takes its result has started. True for ever once a result
  // was used that was lost afterwards: pulls then say so.
  bool pending() const;

  // Calls `done` with what was pushed, once it is reduced; at once if it is already.
  // With `keep_failure` a failed reduction stays: every later pull reports it again, so that an
  // update that is lost is never mistaken for one that was applied. Only then, and only when the
  // forward pass has arrived, is a result handed out that is enqueued on the device and not
  // complete: without, nobody would hear of a failure that comes later; and before the arrival, a
  // stream that waits for the result would hold up the layers before.
  // A pull that expects another version than was pushed fails, and leaves the result for one that
  // does not; kAnyVersion expects none.
  void Pull(bool keep_failure, int64_t version, PullDone done);

  // Makes a pull that waits call back with an error. What was pushed stays for a later pull, unless
  // `drop`: then the slot is free again once the all-reduce is over.
  void CancelPull(bool drop);

  // Calls `done` once no result is used that is not complete yet; with an error if one was lost.
  // For what leaves the device for good, such as a checkpoint. Nothing cancels it: it ends with the
  // reduction.
  void Confirm(ConfirmDone done);

  // The forward pass has come to where it needs this tensor. Counts as waiting until a pull would
  // not.
  void NoteArrival();

  std::string DebugString() const override;

 private:
  enum class Stage {
    kReducing,
    kEnqueued,  // on the device: complete for what a stream does behind `result_.completion`
    kComplete,
  };

  // On the engine thread, of the push with this number:
  void Enqueued(int64_t push, const std::shared_ptr<StreamEvent>& completion);
  void Reduced(int64_t push, const absl::Status& status);

  // These require mutex_.
  bool MayTake() const;  // a pull need not wait
  bool UsesIncomplete() const;
  // The pull that waits, if there is one and it need not any more, and what it gets.
  PullDone TakeForWaiting(Pulled* pulled);
  Pulled Take();
  void EndWait();

  const std::string name_;
  mutable std::mutex mutex_;
  bool pending_ = false;       // pushed and not pulled
  int64_t pushes_ = 0;         // also the number of the last one
  int64_t completed_ = 0;      // number of the last push whose reduction is over, well or badly
  absl::Status lost_;          // not OK: the variable was updated with a reduction that failed
  bool dropped_ = false;       // nobody will pull what was pushed
  bool keep_failure_ = false;  // as the latest pull asked
  bool blocked_ = false;       // the forward pass is counted as waiting
  std::vector<ConfirmDone> confirming_;
  // Of what was pushed last:
  Stage stage_ = Stage::kReducing;
  bool arrived_ = false;  // the forward pass, at the tensor
  TensorHandle handle_ = 0;
  std::shared_ptr<Statistics> statistics_;
  std::shared_ptr<Trace> timeline_;
  Pulled result_;
  PullDone waiting_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TENSORFLOW_GRADIENT_SLOT_H_
