"""The TensorFlow ops of the engine: slot, push, pull, all-reduce.

Each tensor has a `Slot`, a TensorFlow resource that is the first input of its ops. TensorFlow
orders stateful ops on the same resource and no others, so ops on different tensors run in any
order.
"""

import os
import threading

import horovod.tensorflow as horovod
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager import record

from hvd_p3 import _build_info, _engine, process, xla

_library = tf.load_op_library(os.path.join(os.path.dirname(__file__), "_tensorflow_ops.so"))

REDUCIBLE_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64)
_OP_NAMES = {horovod.Sum: "sum", horovod.Average: "average"}
_CONTAINER = "hvd-p3"  # as in gradient_slot.h
ANY_VERSION = -1  # as in gradient_slot.h
HOST = "CPU:0"
_REDUCED_DEVICES = ("CPU", "GPU") if _build_info.CUDA_VERSION else ("CPU",)


class TensorSpec:
    """What ranks agree on before a tensor is reduced.

    Args:
        name: str. Shown in errors and traces; must be the same on all ranks.
        dtype: `tf.DType`, one of `REDUCIBLE_DTYPES`.
        shape: Fully defined shape.
        priority: int. Position of the first use in the forward pass; 0 is the most urgent.
        op: `hvd_p3.Sum` or `hvd_p3.Average`.
        prescale: float. Factor before the reduction.
        postscale: float. Factor after it.

    Raises:
        TypeError: If the dtype cannot be reduced.
        ValueError: If the shape is not fully defined, or op is another one.
    """

    def __init__(self, name, dtype, shape, priority, op, prescale=1.0, postscale=1.0):
        dtype = tf.as_dtype(dtype)
        if dtype not in REDUCIBLE_DTYPES:
            raise TypeError(
                f"Tensor '{name}' has dtype {dtype.name}, which cannot be reduced. Use one of "
                f"{', '.join(each.name for each in REDUCIBLE_DTYPES)}."
            )
        shape = tf.TensorShape(shape)
        if not shape.is_fully_defined():
            raise ValueError(
                f"Tensor '{name}' needs a shape that is fully known when the function is traced. "
                f"Received: shape={shape}"
            )
        if op not in _OP_NAMES:
            raise ValueError(
                f"op must be hvd_p3.Sum or hvd_p3.Average for tensor '{name}'. Received: op={op!r}"
            )
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.priority = priority
        self.op = op
        self.prescale = float(prescale)
        self.postscale = float(postscale)

    def to_engine(self):
        return (
            self.name,
            self.dtype.name,
            self.shape.as_list(),
            self.priority,
            _OP_NAMES[self.op],
            self.prescale,
            self.postscale,
        )


def declare_group(name, specs, arguments=""):
    """Declares tensors that are sliced and fused together.

    Args:
        name: str. The same on all ranks.
        specs: List of `TensorSpec`, in the same order on all ranks. If it is empty, ranks compare
            the group at once.
        arguments: str, what the user asked for. Ranks get an error if it differs.

    Returns:
        A list of int handles for `push` and `all_reduce_slot`.
    """
    return _engine.declare_group(name, [spec.to_engine() for spec in specs], arguments)


def fused_tensors(specs):
    """Returns which tensors of a group are reduced as one message.

    The reduction of one waits for the others, so push all of a set or none.

    Args:
        specs: List of `TensorSpec`, as for `declare_group`.

    Returns:
        A list of lists of int: positions in `specs`, each in one list.
    """
    return _engine.fused_tensors([spec.to_engine() for spec in specs])


def device_of(tensor):
    """Returns the name of the device on which a tensor's gradient is best reduced.

    That is the tensor's own device, if the engine can reduce its memory, and the host otherwise.

    Args:
        tensor: A `tf.Variable` or tensor. In a graph a tensor may have no device yet; then it is
            the host, to which TensorFlow copies it.
    """
    device = tensor.device or HOST
    return device if tf.DeviceSpec.from_string(device).device_type in _REDUCED_DEVICES else HOST


class Slot:
    """Holds what was pushed for one tensor and not pulled yet.

    Args:
        name: str, unique in the process.
        device: str. Where its ops run, and the tensors are that are pushed: see `device_of`.
    """

    def __init__(self, name, device=HOST):
        self.name = name
        self.device = device
        with tf.init_scope(), tf.device(device):
            self.handle = _library.hvd_p3_slot(container=_CONTAINER, shared_name=name)


def push(slot, gradient, context, tensor_handle, version=0):
    """Starts the all-reduce of a gradient and returns at once.

    Args:
        slot: `Slot`, with nothing pending.
        gradient: Tensor of the declared dtype and shape.
        context: List of tensors, returned by the pull of this push.
        tensor_handle: int, from `declare_group`.
        version: int. Number of the hyper-parameters with which the step was traced.
    """
    with tf.device(slot.device):
        _library.hvd_p3_push(
            slot.handle, gradient, context, tensor_handle=tensor_handle, version=version
        )


def is_pending(slot):
    """Returns a bool tensor in host memory: whether something was pushed and not pulled."""
    with tf.device(slot.device):
        return _library.hvd_p3_is_pending(slot.handle)


def pull(slot, dtype, shape, context_specs, keep_failure=False, version=ANY_VERSION):
    """Waits, without blocking a thread, for the pushed gradient to be reduced.

    Args:
        slot: `Slot` with something pending.
        dtype: `tf.DType` of the gradient.
        shape: Shape of the gradient.
        context_specs: List of `tf.TensorSpec`s, of the tensors pushed with it.
        keep_failure: bool. Whether a failed reduction is reported again by every later pull. Only
            then may the result be one that a GPU has still to reduce, see `confirm`.
        version: int. Number of the hyper-parameters that the update will use. If the gradient was
            pushed with another number, that is an error, unless this is `ANY_VERSION`.

    Returns:
        The reduced gradient, the list of context tensors, and the version as an int64 tensor.
    """
    with tf.device(slot.device):
        reduced, pushed_version, context = _library.hvd_p3_pull(
            slot.handle,
            T=dtype,
            context_types=[spec.dtype for spec in context_specs],
            keep_failure=keep_failure,
            version=version,
        )
    # What was pushed has these shapes: the push was traced with them. An op that looks again in
    # every step would cost a few microseconds for each variable.
    reduced.set_shape(shape)
    for tensor, spec in zip(context, context_specs, strict=True):
        tensor.set_shape(spec.shape)
    return reduced, context, pushed_version


def confirm(slot):
    """Waits until what was pulled is complete on the device, too. Call it eagerly.

    A pull hands out what a GPU has still to reduce. What reads the result behind it on the GPU need
    not care, but what leaves the program must not be garbage because the reduction fails then.

    Args:
        slot: `Slot`.

    Raises:
        tf.errors.OpError: If the reduction has failed after its result was pulled.
    """
    if "GPU" in slot.device:  # on the host a pull hands out what is complete
        with tf.device(slot.device):
            _library.hvd_p3_confirm(slot.handle)


def all_reduce_slot(slot, tensor, tensor_handle):
    """Push and pull in one: returns the reduced tensor."""
    with tf.device(slot.device):
        return _library.hvd_p3_all_reduce(slot.handle, tensor, tensor_handle=tensor_handle)


def note_arrival(slots, after):
    """Notes when the tensors `after` exist: from then on the program waits for these slots.

    Call in a function that is being traced; the op is kept although nothing depends on it. It takes
    the tensors as inputs where they need not be copied for it: TensorFlow fuses no op that another
    waits for without using its result.

    Args:
        slots: List of `Slot`.
        after: List of tensors or operations of the graph.

    Returns:
        List of the operations that do so, one for each device.
    """
    graph = tf.compat.v1.get_default_graph()
    arrivals = []
    floating = [each for each in after if tf.is_tensor(each) and each.dtype.is_floating]
    for device in {slot.device: None for slot in slots}:
        names = [slot.name for slot in slots if slot.device == device]
        inputs = floating if _holds_what_is_computed(device) else []
        others = [each for each in after if not any(each is tensor for tensor in inputs)]
        with tf.control_dependencies(others), tf.device(device), record.stop_recording():
            arrivals.append(_library.hvd_p3_arrival(inputs, slot_names=names))
    graph.control_outputs.extend(arrivals)
    return arrivals


def add_to_arrival(operation, slot):
    """Makes the program wait for one more slot from the same point on.

    Args:
        operation: Operation that `note_arrival` has returned, in the graph that is being traced.
        slot: `Slot` on the same device.
    """
    names = attr_value_pb2.AttrValue.ListValue(
        s=[*operation.get_attr("slot_names"), slot.name.encode()]
    )
    operation._set_attr("slot_names", attr_value_pb2.AttrValue(list=names))


def _holds_what_is_computed(device):
    """Whether the tensors of a model whose variables are on a device are most likely there too."""
    return "GPU" in device or not tf.config.list_logical_devices("GPU")


# What all_reduce has declared, for its gradient: tensor handle to spec.
_declared = {}
_slots = {}
_lock = threading.Lock()


def all_reduce(
    tensor, name, priority=0, op=horovod.Average, prescale_factor=1.0, postscale_factor=1.0
):
    """Reduces a tensor over all ranks through the priority queue. Differentiable.

    Works eagerly, in `tf.function`, `tf.cond` and `tf.while_loop`. A name can be in flight once at
    a time.

    Args:
        tensor: Dense tensor or variable of a dtype in `REDUCIBLE_DTYPES`, with the same fully
            defined shape on all ranks.
        name: str. Identifies the tensor on all ranks.
        priority: int. 0 is the most urgent.
        op: `hvd_p3.Average` or `hvd_p3.Sum`.
        prescale_factor: float. Applied before the reduction.
        postscale_factor: float. Applied after it.

    Returns:
        A tensor of the same dtype and shape.

    Raises:
        TypeError: If the dtype cannot be reduced.
        ValueError: If the shape is not fully defined, or `op` is another one, or `name` stood for
            another tensor before.

    Example:

    ```python
    mean = hvd_p3.ops.all_reduce(tf.constant([1.0, 2.0]), name="statistics", priority=5)
    ```
    """
    process.current()
    tensor = tf.convert_to_tensor(tensor)
    spec = TensorSpec(
        name, tensor.dtype, tensor.shape, priority, op, prescale_factor, postscale_factor
    )
    if process.current().reduction == process.HOROVOD:
        return horovod.allreduce(
            tensor,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            name=name,
        )
    xla.check_not_compiling()
    (tensor_handle,) = declare_group(name, [spec])
    with _lock:
        _declared[tensor_handle] = spec
        if name not in _slots:
            _slots[name] = Slot("tensor/" + name, device_of(tensor))
        slot = _slots[name]
    return all_reduce_slot(slot, tensor, tensor_handle)


@tf.RegisterGradient("HvdP3AllReduce")
def _all_reduce_gradient(operation, upstream):
    """The gradient of a sum over ranks with respect to one rank's part is the sum over ranks of the
    upstream gradients; scales carry over, since the reduction is linear."""
    spec = _declared[operation.get_attr("tensor_handle")]  # others are behind PreventGradient
    reduced = all_reduce(
        upstream,
        name=spec.name + "/gradient",
        priority=spec.priority,
        op=spec.op,
        prescale_factor=spec.prescale,
        postscale_factor=spec.postscale,
    )
    return None, reduced
