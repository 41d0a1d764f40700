#include "tensorflow/gradient_slot.h"

#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/status.h"

namespace hvd_p3 {
namespace {

// What the engine reads and writes until the all-reduce is over.
struct PushedBuffers {
  tensorflow::Tensor gradient;
  tensorflow::Tensor output;
};

}  // namespace

absl::Status GradientSlot::Push(const std::shared_ptr<Engine>& engine, TensorHandle handle,
                                const Pushed& pushed) {
  int64_t push = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!lost_.ok()) return lost_;
    if (pending_) {
      return absl::FailedPreconditionError(
          "tensor '" + name_ + "' was pushed while its previous gradient was not applied yet");
    }
    pending_ = true;
    stage_ = Stage::kReducing;
    arrived_ = false;
    push = ++pushes_;
    statistics_ = engine->statistics();
    timeline_ = engine->timeline();
    handle_ = handle;
    result_ = {absl::OkStatus(), pushed.output, nullptr, pushed.context, pushed.version};
  }
  auto buffers = std::make_shared<PushedBuffers>(PushedBuffers{pushed.gradient, pushed.output});
  Submission submission;
  submission.input = buffers->gradient.data();
  submission.output = buffers->output.data();
  submission.buffers = buffers;
  submission.device = pushed.device;
  submission.ready = pushed.ready;
  submission.enqueued = [this, push](const std::shared_ptr<StreamEvent>& completion) {
    Enqueued(push, completion);
  };
  Ref();  // released by the callback
  submission.done = [this, push](const Status& status) {
    Reduced(push, ToTensorFlow(status));
    Unref();
  };
  engine->Submit(handle, std::move(submission));
  return absl::OkStatus();
}

bool GradientSlot::pending() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pending_ || !lost_.ok();
}

void GradientSlot::Pull(bool keep_failure, int64_t version, PullDone done) {
  Pulled pulled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    keep_failure_ = keep_failure;
    if (!lost_.ok()) {
      pulled.status = lost_;
    } else if (!pending_) {
      pulled.status = absl::FailedPreconditionError("tensor '" + name_ +
                                                    "' was pulled without having been pushed");
    } else if (version != kAnyVersion && version != result_.version) {
      pulled.status = absl::FailedPreconditionError(
          "tensor '" + name_ +
          "' was pushed by a function that was traced with other hyper-parameters of the optimizer "
          "than the function that applies it; call hvd_p3.settle(model) between the two");
    } else if (!MayTake() && waiting_) {
      pulled.status = absl::FailedPreconditionError(
          "two threads read the variable of tensor '" + name_ +
          "' at once while its update is pending; read weights in the thread that trains");
    } else if (!MayTake()) {
      waiting_ = std::move(done);
      return;
    } else {
      pulled = Take();
    }
  }
  done(pulled);
}

void GradientSlot::CancelPull(bool drop) {
  PullDone waiting;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting = std::exchange(waiting_, nullptr);
    if (drop && pending_) {
      dropped_ = true;
      if (stage_ == Stage::kComplete) Take();
    }
  }
  if (!waiting) return;
  waiting({
      absl::CancelledError("the step was cancelled while it waited for tensor '" + name_ + "'"),
  });
}

void GradientSlot::Confirm(ConfirmDone done) {
  absl::Status status;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (UsesIncomplete()) {
      confirming_.push_back(std::move(done));
      return;
    }
    status = lost_;
  }
  done(status);
}

void GradientSlot::NoteArrival() {
  PullDone waiting;
  Pulled pulled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!pending_) return;
    arrived_ = true;
    waiting = TakeForWaiting(&pulled);
    if (pending_ && !blocked_ && !MayTake()) {
      blocked_ = true;
      statistics_->ReaderBlocked();
      timeline_->Record({TraceKind::kWaitBegan, handle_});
    }
  }
  if (waiting) waiting(pulled);
}

void GradientSlot::Enqueued(int64_t push, const std::shared_ptr<StreamEvent>& completion) {
  PullDone waiting;
  Pulled pulled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (push != pushes_) return;
    stage_ = Stage::kEnqueued;
    result_.completion = completion;
    waiting = TakeForWaiting(&pulled);
  }
  if (waiting) waiting(pulled);
}

void GradientSlot::Reduced(int64_t push, const absl::Status& status) {
  PullDone waiting;
  Pulled pulled;
  std::vector<ConfirmDone> confirming;
  absl::Status lost;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    completed_ = push;  // in order: a push is admitted when the one before is over
    const bool was_taken = push != pushes_ || !pending_;
    if (!was_taken) {
      stage_ = Stage::kComplete;
      result_.status = status;
      result_.completion = nullptr;
      waiting = TakeForWaiting(&pulled);
      if (!waiting && dropped_) Take();
    } else if (!status.ok()) {
      lost_ = absl::Status(status.code(),
                           "the reduction of tensor '" + name_ +
                               "' failed after its result was used, so its variable holds no valid "
                               "weights: load a checkpoint; the cause: " +
                               std::string(status.message()));
    }
    lost = lost_;
    if (!UsesIncomplete()) confirming.swap(confirming_);
  }
  if (waiting) waiting(pulled);
  for (const ConfirmDone& done : confirming) done(lost);
}

bool GradientSlot::MayTake() const {
  return stage_ == Stage::kComplete || (stage_ == Stage::kEnqueued && keep_failure_ && arrived_);
}

bool GradientSlot::UsesIncomplete() const {
  const int64_t last_taken = pending_ ? pushes_ - 1 : pushes_;
  return completed_ < last_taken;
}

GradientSlot::PullDone GradientSlot::TakeForWaiting(Pulled* pulled) {
  if (!MayTake()) return nullptr;
  EndWait();
  if (!waiting_) return nullptr;
  *pulled = Take();
  return std::exchange(waiting_, nullptr);
}

GradientSlot::Pulled GradientSlot::Take() {
  EndWait();
  if (!result_.status.ok() && keep_failure_ && !dropped_) return {result_.status};
  if (result_.status.ok() && !dropped_) timeline_->Record({TraceKind::kApplied, handle_});
  pending_ = false;
  dropped_ = false;
  return std::exchange(result_, {});
}

void GradientSlot::EndWait() {
  if (!blocked_) return;
  blocked_ = false;
  statistics_->ReaderReleased();
  timeline_->Record({TraceKind::kWaitEnded, handle_});
}

std::string GradientSlot::DebugString() const { return "hvd_p3 slot of tensor '" + name_ + "'"; }

}  // namespace hvd_p3
