#include "tensorflow/gradient_slot.h"

#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace hvd_p3 {
namespace {

absl::Status ToTensorFlow(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return absl::OkStatus();
    case StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(status.message());
    case StatusCode::kMismatch:
      return absl::FailedPreconditionError(status.message());
    case StatusCode::kTransport:
      return absl::UnavailableError(status.message());
    case StatusCode::kStalled:
      return absl::DeadlineExceededError(status.message());
    case StatusCode::kOutOfMemory:
      return absl::ResourceExhaustedError(status.message());
    case StatusCode::kShutdown:
      return absl::AbortedError(status.message());
  }
  return absl::InternalError(status.message());
}

// What the engine reads and writes until the all-reduce is over.
struct PushedBuffers {
  tensorflow::Tensor gradient;
  tensorflow::Tensor output;
};

}  // namespace

absl::Status GradientSlot::Push(const std::shared_ptr<Engine>& engine, TensorHandle handle,
                                const tensorflow::Tensor& gradient,
                                const tensorflow::Tensor& output,
                                std::vector<tensorflow::Tensor> context, int64_t version) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pending_) {
      return absl::FailedPreconditionError(
          "tensor '" + name_ + "' was pushed while its previous gradient was not applied yet");
    }
    pending_ = true;
    reduced_ = false;
    statistics_ = engine->statistics();
    timeline_ = engine->timeline();
    handle_ = handle;
    result_ = {absl::OkStatus(), output, std::move(context), version};
  }
  auto buffers = std::make_shared<PushedBuffers>(PushedBuffers{gradient, output});
  Submission submission;
  submission.input = buffers->gradient.data();
  submission.output = buffers->output.data();
  submission.buffers = buffers;
  Ref();  // released by the callback
  submission.done = [this](const Status& status) {
    Reduced(ToTensorFlow(status));
    Unref();
  };
  engine->Submit(handle, std::move(submission));
  return absl::OkStatus();
}

bool GradientSlot::pending() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pending_;
}

void GradientSlot::Pull(bool keep_failure, int64_t version, PullDone done) {
  Pulled pulled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    keep_failure_ = keep_failure;
    if (!pending_) {
      pulled.status = absl::FailedPreconditionError("tensor '" + name_ +
                                                    "' was pulled without having been pushed");
    } else if (version != kAnyVersion && version != result_.version) {
      pulled.status = absl::FailedPreconditionError(
          "tensor '" + name_ +
          "' was pushed by a function that was traced with other hyper-parameters of the optimizer "
          "than the function that applies it; call hvd_p3.settle(model) between the two");
    } else if (!reduced_ && waiting_) {
      pulled.status = absl::FailedPreconditionError(
          "two threads read the variable of tensor '" + name_ +
          "' at once while its update is pending; read weights in the thread that trains");
    } else if (!reduced_) {
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
      if (reduced_) Take();
    }
  }
  if (!waiting) return;
  waiting(
      {absl::CancelledError("the step was cancelled while it waited for tensor '" + name_ + "'"),
       {},
       {},
       0});
}

GradientSlot::Pulled GradientSlot::Take() {
  if (!result_.status.ok() && keep_failure_ && !dropped_) return {result_.status, {}, {}, 0};
  if (result_.status.ok() && !dropped_) timeline_->Record({TraceKind::kApplied, handle_});
  pending_ = false;
  dropped_ = false;
  return std::exchange(result_, {});
}

void GradientSlot::NoteArrival() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!pending_ || reduced_ || blocked_) return;
  blocked_ = true;
  statistics_->ReaderBlocked();
  timeline_->Record({TraceKind::kWaitBegan, handle_});
}

void GradientSlot::Reduced(const absl::Status& status) {
  PullDone waiting;
  Pulled pulled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    reduced_ = true;
    result_.status = status;
    if (blocked_) {
      statistics_->ReaderReleased();
      timeline_->Record({TraceKind::kWaitEnded, handle_});
    }
    blocked_ = false;
    waiting = std::exchange(waiting_, nullptr);
    if (waiting || dropped_) pulled = Take();
  }
  if (waiting) waiting(pulled);
}

std::string GradientSlot::DebugString() const { return "hvd_p3 slot of tensor '" + name_ + "'"; }

}  // namespace hvd_p3
