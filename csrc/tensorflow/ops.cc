// The signatures of the custom ops. Kernels: kernels.cc. Use from Python: hvd_p3/ops.py.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace hvd_p3 {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::UnchangedShape;
using tensorflow::shape_inference::UnknownShape;

// The element types that the engine reduces.
#define HVD_P3_TYPES "{half, bfloat16, float32, float64, int32, int64}"

REGISTER_OP("HvdP3Slot")
    .Attr("container: string = ''")
    .Attr("shared_name: string")
    .Output("slot: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("The slot with this name, made on first use.");

REGISTER_OP("HvdP3Push")
    .Attr("T: " HVD_P3_TYPES)
    .Attr("context_types: list(type) >= 0 = []")
    .Attr("tensor_handle: int")
    .Attr("version: int = 0")
    .Input("slot: resource")
    .Input("gradient: T")
    .Input("context: context_types")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Starts the all-reduce of a gradient and returns at once.");

REGISTER_OP("HvdP3IsPending")
    .Input("slot: resource")
    .Output("pending: bool")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Whether a gradient was pushed and not pulled.");

REGISTER_OP("HvdP3Pull")
    .Attr("T: " HVD_P3_TYPES)
    .Attr("context_types: list(type) >= 0 = []")
    .Attr("keep_failure: bool = false")
    .Attr("version: int = -1")
    .Input("slot: resource")
    .Output("reduced: T")
    .Output("pushed_version: int64")
    .Output("context: context_types")
    .SetIsStateful()
    .SetShapeFn(UnknownShape)
    .Doc(
        "Waits for the pushed gradient to be reduced, without blocking a thread. An error if it "
        "was pushed with another version than `version`, unless that is -1.");

REGISTER_OP("HvdP3Confirm")
    .Input("slot: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(
        "Waits until what was pulled is complete on the device, too. An error if it was used and "
        "then lost.");

REGISTER_OP("HvdP3AllReduce")
    .Attr("T: " HVD_P3_TYPES)
    .Attr("tensor_handle: int")
    .Input("slot: resource")
    .Input("tensor: T")
    .Output("reduced: T")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->input(1));
      return absl::OkStatus();
    })
    .Doc("Push and pull in one.");

// Not stateful, so that automatic control dependencies do not order arrivals among each other.
REGISTER_OP("HvdP3Arrival")
    .Attr("T: list(type) >= 0")
    .Attr("slot_names: list(string)")
    .Input("after: T")
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(
        "Notes, once there is `after`, that the program has come to where it needs these tensors.");

}  // namespace
}  // namespace hvd_p3
