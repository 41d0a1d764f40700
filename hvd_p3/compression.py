"""Compression: what gradients are turned into for their way between ranks.

A compressor has two functions, Horovod's interface: `compress(tensor)` returns a smaller tensor and
a context, and `decompress(tensor, context)` undoes it on the sum of all ranks' smaller tensors.
"""

import horovod.tensorflow as horovod
import tensorflow as tf
from horovod.tensorflow.compression import Compressor
from tensorflow.python.framework.func_graph import FuncGraph

from hvd_p3.variables import path_of


class _BFloat16Compressor(Compressor):
    """float32 and float64 travel as bfloat16; other dtypes as they are."""

    @staticmethod
    def compress(tensor):
        is_wider = tensor.dtype.is_floating and tensor.dtype.size > tf.bfloat16.size
        return (tf.cast(tensor, tf.bfloat16) if is_wider else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor, context):
        return tf.cast(tensor, context)


class Compression(horovod.Compression):
    """The compressors for the `compression` argument of `hvd_p3.DistributedOptimizer` and others.

    - `Compression.none`: gradients travel as they are.
    - `Compression.fp16`: floating-point gradients travel as float16. A sum above 65504 becomes
      infinite, and gradients below 6e-8 become 0.
    - `Compression.bf16`: float32 and float64 gradients travel as bfloat16, which has the range of
      float32 and is coarser than float16.

    Ranks add up the compressed gradients, so every addition rounds to 16 bits.

    Example:

    ```python
    optimizer = hvd_p3.DistributedOptimizer(
        keras.optimizers.SGD(0.1), compression=hvd_p3.Compression.bf16
    )
    ```
    """

    bf16 = _BFloat16Compressor


def check(compressor):
    """Raises `ValueError` unless `compressor` has the two functions of a compressor."""
    functions = (getattr(compressor, name, None) for name in ("compress", "decompress"))
    if not all(callable(function) for function in functions):
        raise ValueError(
            "compression must be hvd_p3.Compression.none, .fp16 or .bf16, or a class with static "
            "functions compress(tensor), which returns a tensor and a context, and "
            f"decompress(tensor, context). Received: compression={compressor!r}"
        )


class WireFormat:
    """What a compressor makes of one variable's gradient, found out before there is a gradient.

    In overlapped mode the forward pass, which decompresses what the step before has sent, is traced
    before the backward pass, which compresses.

    Args:
        compressor: See above.
        variable: The variable, whose dtype and shape its gradients have.

    Attributes:
        dtype: `tf.DType` of what is sent.
        shape: `tf.TensorShape` of what is sent.
    """

    def __init__(self, compressor, variable):
        self._compressor = compressor
        self._path = path_of(variable)
        self._gradient_shape = tf.TensorShape(variable.shape)
        with FuncGraph("hvd_p3_wire_format").as_default():
            gradient = tf.compat.v1.placeholder(variable.dtype, self._gradient_shape)
            compressed, self._context = compressor.compress(gradient)
        self.dtype = compressed.dtype
        self.shape = compressed.shape

    def compress(self, gradient):
        """Returns the tensor to send; raises `ValueError` if it has not this format."""
        compressed, context = self._compressor.compress(gradient)
        if not self._is(compressed.dtype, compressed.shape, context):
            raise ValueError(
                f"compression {_name(self._compressor)} has made a {compressed.dtype.name} tensor "
                f"of shape {compressed.shape} with the context {context!r} of the gradient of "
                f"'{self._path}', and a {self.dtype.name} tensor of shape {self.shape} with the "
                f"context {self._context!r} before. Use a compressor that treats all gradients of "
                "a variable alike, or train in immediate mode (HVD_P3_OVERLAP=0)."
            )
        return compressed

    def decompress(self, reduced):
        gradient = self._compressor.decompress(reduced, self._context)
        if gradient.shape == self._gradient_shape:
            return gradient
        return tf.ensure_shape(gradient, self._gradient_shape)

    def has_tensors(self):
        """Whether the context has tensors, which belong to the step that made them."""
        return any(tf.is_tensor(each) for each in tf.nest.flatten(self._context))

    def is_like(self, other):
        return self._is(other.dtype, other.shape, other._context)

    def _is(self, dtype, shape, context):
        return (
            dtype == self.dtype
            and shape.is_fully_defined()
            and shape == self.shape
            and _are_equal(context, self._context)
        )


def reason_for_immediate_mode(compressor, wire_formats, variables):
    """Says why gradients cannot be decompressed by a later step, or returns `None`.

    Args:
        compressor: See above.
        wire_formats: List of `WireFormat`s, made earlier.
        variables: The list of their variables.
    """
    for wire_format, variable in zip(wire_formats, variables, strict=True):
        if wire_format.has_tensors():
            return f"compression {_name(compressor)} keeps tensors for decompress"
        if not wire_format.is_like(WireFormat(compressor, variable)):
            return (
                f"compression {_name(compressor)} does not treat all gradients of variable "
                f"'{path_of(variable)}' alike"
            )
    return None


def _are_equal(one, other):
    try:
        return one is other or bool(one == other)
    except (TypeError, ValueError):  # arrays and symbolic tensors are no single truth
        return False


def _name(compressor):
    return getattr(compressor, "__name__", type(compressor).__name__)
