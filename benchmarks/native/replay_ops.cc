// TensorFlow ops of a layer that computes nothing and takes its time; see workloads/replay.py.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "emulated_device.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace hvd_p3 {
namespace {

using tensorflow::AllocationDescription;
using tensorflow::AsyncOpKernel;
using tensorflow::DT_FLOAT;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorBuffer;
using tensorflow::TensorShape;
using tensorflow::core::RefCountPtr;
using tensorflow::shape_inference::InferenceContext;

// Not stateful: TensorFlow would run them in program order, and only data may order them.
REGISTER_OP("HvdP3ReplayForward")
    .Attr("seconds: float")
    .Attr("backward_seconds: float")
    .Attr("N: int >= 0")
    .Input("x: float")
    .Input("variables: N * float")
    .Output("y: float")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc("Passes x on after a set time. Reads the variables before.");

REGISTER_OP("HvdP3ReplayBackward")
    .Attr("seconds: float")
    .Attr("shapes: list(shape)")
    .Attr("N: int >= 0")
    .Input("dy: float")
    .Output("dx: float")
    .Output("gradients: N * float")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->input(0));
      std::vector<tensorflow::PartialTensorShape> shapes;
      TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
      for (size_t i = 0; i < shapes.size(); ++i) {
        tensorflow::shape_inference::ShapeHandle shape;
        TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
        context->set_output(static_cast<int>(i) + 1, shape);
      }
      return absl::OkStatus();
    })
    .Doc("Passes dy on after a set time, and gradients of the variables with it.");

// Memory for gradients of one variable. A real device writes gradients without the host's help: so
// buffers are filled once, and what was released is given out again as it is. Any thread may use
// it.
class GradientMemory {
 public:
  explicit GradientMemory(const TensorShape& shape) : shape_(shape) {}

  // A gradient that nothing else uses. `self` is this, and stays until the gradient is released.
  static Tensor Take(const std::shared_ptr<GradientMemory>& self) {
    return {DT_FLOAT, self->shape_, RefCountPtr<TensorBuffer>(new Lent(self, self->Next()))};
  }

 private:
  class Lent : public TensorBuffer {
   public:
    Lent(std::shared_ptr<GradientMemory> owner, Tensor memory)
        : TensorBuffer(memory.data()), owner_(std::move(owner)), memory_(std::move(memory)) {}
    ~Lent() override { owner_->TakeBack(std::move(memory_)); }

    size_t size() const override { return memory_.TotalBytes(); }
    TensorBuffer* root_buffer() override { return this; }
    void FillAllocationDescription(AllocationDescription* description) const override {
      description->set_requested_bytes(static_cast<int64_t>(size()));
    }

   private:
    const std::shared_ptr<GradientMemory> owner_;
    Tensor memory_;
  };

  Tensor Next() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) {
      Tensor memory(DT_FLOAT, shape_);
      memory.flat<float>().setConstant(1e-3f);
      return memory;
    }
    Tensor memory = std::move(free_.back());
    free_.pop_back();
    return memory;
  }
  void TakeBack(Tensor memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(memory));
  }

  const TensorShape shape_;
  std::mutex mutex_;
  std::vector<Tensor> free_;
};

class ReplayForwardOp : public AsyncOpKernel {
 public:
  explicit ReplayForwardOp(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("seconds", &seconds_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    EmulatedDevice::Instance().Run(seconds_, [context, done = std::move(done)] {
      context->set_output(0, context->input(0));
      done();
    });
  }

 private:
  float seconds_ = 0;
};

class ReplayBackwardOp : public AsyncOpKernel {
 public:
  explicit ReplayBackwardOp(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("seconds", &seconds_));
    std::vector<TensorShape> shapes;
    OP_REQUIRES_OK(construction, construction->GetAttr("shapes", &shapes));
    for (const TensorShape& shape : shapes) {
      gradients_.push_back(std::make_shared<GradientMemory>(shape));
    }
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    EmulatedDevice::Instance().Run(seconds_, [this, context, done = std::move(done)] {
      context->set_output(0, context->input(0));
      for (size_t i = 0; i < gradients_.size(); ++i) {
        context->set_output(static_cast<int>(i) + 1, GradientMemory::Take(gradients_[i]));
      }
      done();
    });
  }

 private:
  float seconds_ = 0;
  std::vector<std::shared_ptr<GradientMemory>> gradients_;
};

REGISTER_KERNEL_BUILDER(Name("HvdP3ReplayForward").Device(tensorflow::DEVICE_CPU), ReplayForwardOp);
REGISTER_KERNEL_BUILDER(Name("HvdP3ReplayBackward").Device(tensorflow::DEVICE_CPU),
                        ReplayBackwardOp);

}  // namespace
}  // namespace hvd_p3

// For ctypes: writes start and end of the last `capacity` pieces of work at most, in seconds of the
// steady clock, oldest first; returns how many.
extern "C" size_t hvd_p3_replay_record(double* starts_and_ends, size_t capacity) {
  const auto record = hvd_p3::EmulatedDevice::Instance().Record();
  const size_t count = std::min(capacity, record.size());
  for (size_t i = 0; i < count; ++i) {
    const auto& [start, end] = record[record.size() - count + i];
    starts_and_ends[2 * i] = start;
    starts_and_ends[2 * i + 1] = end;
  }
  return count;
}

// For ctypes: multiplies the times of all replayed layers.
extern "C" void hvd_p3_replay_set_time_scale(double scale) {
  hvd_p3::EmulatedDevice::Instance().SetTimeScale(scale);
}
