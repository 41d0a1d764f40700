// The kernels of the custom ops, see ops.cc. On a GPU, slots and flags live on the host, and
// gradients and their context in the device's memory.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine.h"
#include "core/global_engine.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_op_kernel.h"
#include "tensorflow/device_stream.h"
#include "tensorflow/gradient_slot.h"

namespace hvd_p3 {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

absl::Status FindSlot(OpKernelContext* context, RefCountPtr<GradientSlot>* slot) {
  return tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, 0), slot);
}

absl::Status FindEngine(std::shared_ptr<Engine>* engine) {
  *engine = GlobalEngine();
  if (*engine != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("hvd_p3 is not initialised; call hvd_p3.init() first");
}

// The input that is reduced, of all ops that do so.
constexpr int kReducedInput = 1;

// The buffer that the reduced tensor is written to: that of the input itself if nothing else uses
// it, as is so for most gradients in overlapped mode.
absl::Status AllocateReduced(OpKernelContext* context, const GradientSlot& slot, Tensor* output) {
  const Tensor& tensor = context->input(kReducedInput);
  const absl::Status status = context->forward_input_or_allocate_temp(
      {kReducedInput}, tensor.dtype(), tensor.shape(), output);
  if (status.ok()) return status;
  return absl::ResourceExhaustedError(
      "there is no memory on this rank for the reduced gradient of tensor '" + slot.name() + "' (" +
      std::to_string(tensor.TotalBytes()) +
      " bytes); run fewer ranks on this host, or a smaller model: " +
      std::string(status.message()));
}

// What a push starts with: the tensor, the buffer of the result, and where and when both are ready.
// The buffer, too, is free only from then on: what the device computes at that moment may still use
// its memory.
absl::Status Prepare(OpKernelContext* context, const GradientSlot& slot,
                     GradientSlot::Pushed* pushed) {
  // Before anything here shares the input's buffer, or it would not be free.
  const absl::Status status = AllocateReduced(context, slot, &pushed->output);
  if (!status.ok()) return status;
  pushed->gradient = context->input(kReducedInput);
  return RecordInputs(context, &pushed->device, &pushed->ready);
}

class SlotOp : public tensorflow::ResourceOpKernel<GradientSlot> {
 public:
  explicit SlotOp(OpKernelConstruction* construction)
      : ResourceOpKernel<GradientSlot>(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("shared_name", &slot_name_));
  }

 private:
  absl::Status CreateResource(GradientSlot** slot) override {
    *slot = new GradientSlot(slot_name_);
    return absl::OkStatus();
  }

  std::string slot_name_;
};

class PushOp : public OpKernel {
 public:
  explicit PushOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("tensor_handle", &tensor_handle_));
    OP_REQUIRES_OK(construction, construction->GetAttr("version", &version_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<GradientSlot> slot;
    OP_REQUIRES_OK(context, FindSlot(context, &slot));
    std::shared_ptr<Engine> engine;
    OP_REQUIRES_OK(context, FindEngine(&engine));
    GradientSlot::Pushed pushed;
    OP_REQUIRES_OK(context, Prepare(context, *slot, &pushed));
    OpInputList kept;
    OP_REQUIRES_OK(context, context->input_list("context", &kept));
    pushed.context.assign(kept.begin(), kept.end());
    pushed.version = version_;
    OP_REQUIRES_OK(context, slot->Push(engine, tensor_handle_, pushed));
  }

 private:
  tensorflow::int64 tensor_handle_ = 0;
  tensorflow::int64 version_ = 0;
};

class IsPendingOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<GradientSlot> slot;
    OP_REQUIRES_OK(context, FindSlot(context, &slot));
    Tensor* pending = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &pending));
    pending->scalar<bool>()() = slot->pending();
  }
};

struct PullOptions {
  bool one_shot;      // a cancelled pull drops the gradient; else the slot keeps it for a later one
  bool keep_failure;  // see GradientSlot::Pull
  int64_t version;    // see GradientSlot::Pull
};

using SetOutputs = void (*)(OpKernelContext*, const GradientSlot::Pulled&);

// Pulls for `context`, and calls `done` when the outputs are set or the step is cancelled.
void PullInto(OpKernelContext* context, RefCountPtr<GradientSlot> slot, const PullOptions& options,
              SetOutputs set_outputs, AsyncOpKernel::DoneCallback done) {
  // Shared by the pull and the cancellation, which may run at the same time in two threads.
  const std::shared_ptr<GradientSlot> shared(slot.release(),
                                             [](GradientSlot* owned) { owned->Unref(); });
  tensorflow::CancellationManager* manager = context->cancellation_manager();
  tensorflow::CancellationToken token = tensorflow::CancellationManager::kInvalidToken;
  if (manager != nullptr) {
    token = manager->get_cancellation_token();
    const bool one_shot = options.one_shot;
    const auto cancel = [shared, one_shot] { shared->CancelPull(one_shot); };
    if (!manager->RegisterCallback(token, cancel)) {
      if (one_shot) cancel();
      context->CtxFailure(absl::CancelledError("the step was cancelled"));
      return done();
    }
  }
  const auto pulled = [context, manager, token, set_outputs,
                       done](const GradientSlot::Pulled& result) {
    // TryDeregister does not wait for a cancellation that is running, which may be this very call.
    if (manager != nullptr) manager->TryDeregisterCallback(token);
    absl::Status status = result.status;
    if (status.ok() && result.completion != nullptr) {
      status = BlockStream(context, result.completion.get());
    }
    if (!status.ok()) {
      context->CtxFailure(status);
    } else {
      set_outputs(context, result);
    }
    done();
  };
  shared->Pull(options.keep_failure, options.version, pulled);
}

class PullOp : public AsyncOpKernel {
 public:
  explicit PullOp(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("keep_failure", &options_.keep_failure));
    OP_REQUIRES_OK(construction, construction->GetAttr("version", &options_.version));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    RefCountPtr<GradientSlot> slot;
    OP_REQUIRES_OK_ASYNC(context, FindSlot(context, &slot), done);
    PullInto(context, std::move(slot), options_, &SetAllOutputs, std::move(done));
  }

 private:
  static void SetAllOutputs(OpKernelContext* context, const GradientSlot::Pulled& pulled) {
    context->set_output(0, pulled.reduced);
    Tensor version(tensorflow::DT_INT64, {});
    version.scalar<tensorflow::int64>()() = pulled.version;
    context->set_output(1, version);
    for (size_t i = 0; i < pulled.context.size(); ++i) {
      context->set_output(static_cast<int>(i) + 2, pulled.context[i]);
    }
  }

  PullOptions options_ = {/*one_shot=*/false, /*keep_failure=*/false, kAnyVersion};
};

class ConfirmOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    RefCountPtr<GradientSlot> slot;
    OP_REQUIRES_OK_ASYNC(context, FindSlot(context, &slot), done);
    slot->Confirm([context, done](const absl::Status& status) {
      context->SetStatus(status);
      done();
    });
  }
};

class AllReduceOp : public AsyncOpKernel {
 public:
  explicit AllReduceOp(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("tensor_handle", &tensor_handle_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    RefCountPtr<GradientSlot> slot;
    OP_REQUIRES_OK_ASYNC(context, FindSlot(context, &slot), done);
    std::shared_ptr<Engine> engine;
    OP_REQUIRES_OK_ASYNC(context, FindEngine(&engine), done);
    GradientSlot::Pushed pushed;
    OP_REQUIRES_OK_ASYNC(context, Prepare(context, *slot, &pushed), done);
    OP_REQUIRES_OK_ASYNC(context, slot->Push(engine, tensor_handle_, pushed), done);
    PullInto(context, std::move(slot), kOptions, &SetReduced, std::move(done));
  }

 private:
  static constexpr PullOptions kOptions = {/*one_shot=*/true, /*keep_failure=*/false, kAnyVersion};

  static void SetReduced(OpKernelContext* context, const GradientSlot::Pulled& pulled) {
    context->set_output(0, pulled.reduced);
  }

  tensorflow::int64 tensor_handle_ = 0;
};

class ArrivalOp : public OpKernel {
 public:
  explicit ArrivalOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("slot_names", &slot_names_));
  }

  void Compute(OpKernelContext* context) override {
    for (const std::string& name : slot_names_) {
      GradientSlot* slot = nullptr;
      if (!context->resource_manager()->Lookup(kSlotContainer, name, &slot).ok()) continue;
      const tensorflow::core::ScopedUnref release(slot);
      slot->NoteArrival();
    }
  }

 private:
  std::vector<std::string> slot_names_;
};

#define HVD_P3_CPU(op) Name(op).Device(tensorflow::DEVICE_CPU)
REGISTER_KERNEL_BUILDER(HVD_P3_CPU("HvdP3Slot"), SlotOp);
REGISTER_KERNEL_BUILDER(HVD_P3_CPU("HvdP3Push"), PushOp);
REGISTER_KERNEL_BUILDER(HVD_P3_CPU("HvdP3IsPending"), IsPendingOp);
REGISTER_KERNEL_BUILDER(HVD_P3_CPU("HvdP3Pull"), PullOp);
REGISTER_KERNEL_BUILDER(HVD_P3_CPU("HvdP3Confirm"), ConfirmOp);
REGISTER_KERNEL_BUILDER(HVD_P3_CPU("HvdP3AllReduce"), AllReduceOp);
REGISTER_KERNEL_BUILDER(HVD_P3_CPU("HvdP3Arrival"), ArrivalOp);

#ifdef HVD_P3_WITH_CUDA
#define HVD_P3_GPU(op) Name(op).Device(tensorflow::DEVICE_GPU)
REGISTER_KERNEL_BUILDER(HVD_P3_GPU("HvdP3Slot").HostMemory("slot"), SlotOp);
REGISTER_KERNEL_BUILDER(HVD_P3_GPU("HvdP3Push").HostMemory("slot"), PushOp);
REGISTER_KERNEL_BUILDER(HVD_P3_GPU("HvdP3IsPending").HostMemory("slot").HostMemory("pending"),
                        IsPendingOp);
REGISTER_KERNEL_BUILDER(HVD_P3_GPU("HvdP3Pull").HostMemory("slot").HostMemory("pushed_version"),
                        PullOp);
REGISTER_KERNEL_BUILDER(HVD_P3_GPU("HvdP3Confirm").HostMemory("slot"), ConfirmOp);
REGISTER_KERNEL_BUILDER(HVD_P3_GPU("HvdP3AllReduce").HostMemory("slot"), AllReduceOp);
REGISTER_KERNEL_BUILDER(HVD_P3_GPU("HvdP3Arrival"), ArrivalOp);
#endif

}  // namespace
}  // namespace hvd_p3
