"""Counts floating-point operations, whatever layer does them: by the ops that TensorFlow runs."""

import collections
import contextlib
import math

import keras
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

# Op without its version -> the attribute that says whether its first input is transposed.
_PRODUCTS = {"MatMul": "transpose_a", "BatchMatMul": "adj_x"}
# Op without its version -> what multiplies with the kernel, its second input. A kernel's last axis
# is the channels of that, but for depthwise convolutions.
_CONVOLUTIONS = {
    "Conv2D": lambda inputs, outputs: outputs[0],
    "Conv3D": lambda inputs, outputs: outputs[0],
    "Conv2DBackpropInput": lambda inputs, outputs: inputs[2],  # transposed
    "Conv3DBackpropInput": lambda inputs, outputs: inputs[2],
}
_KERNEL = 1


def count(call):
    """Counts the operations of a forward pass: products of matrices, convolutions, and recurrent
    layers. A multiplication and an addition are two.

    Not counted, since they take a small share: biases, normalization, activations, pooling and
    lookups.

    Args:
        call: Function without arguments, that calls a layer eagerly.

    Returns:
        int.
    """
    return sum(_by_op(call).values())


def of_layer(layer, arguments, keywords):
    """Counts the operations of a layer's forward pass.

    Args:
        layer: `keras.layers.Layer`.
        arguments: tuple, of its call.
        keywords: dict, of its call.

    Returns:
        int.
    """
    counted = _by_op(lambda: layer(*arguments, **keywords))
    total = sum(counted.values())
    steps = _steps(layer, arguments)
    if steps and not any(op.startswith("CudnnRNN") for op in counted):
        # Keras takes one step more than the sequence has, to see what a step returns. In graphs no
        # one reads it, so it is left out.
        return total * steps // (steps + 1)
    return total


def _steps(layer, arguments):
    """The steps of a recurrent layer that loops over them; 0 of others."""
    inner = layer.forward_layer if isinstance(layer, keras.layers.Bidirectional) else layer
    loops = isinstance(inner, keras.layers.RNN) and not inner.unroll
    return arguments[0].shape[1] if loops and arguments else 0


def _by_op(call):
    counted = collections.Counter()

    def watch(op_type, inputs, attributes, outputs, op_name=None, graph=None):
        if graph is None:
            name = op_type.decode() if isinstance(op_type, bytes) else op_type
            counted[name] += _operations(name, inputs, attributes or (), outputs)

    with _functions_run_eagerly(), _watched(watch):
        call()
    return counted


@contextlib.contextmanager
def _functions_run_eagerly():
    """A function that was traced before is one op."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextlib.contextmanager
def _watched(callback):
    op_callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(callback)


def _operations(name, inputs, attributes, outputs):
    base = name.removesuffix("V2").removesuffix("V3")
    if base in _PRODUCTS:
        transposed = _attribute(attributes, _PRODUCTS[base])
        summed = inputs[0].shape[-2 if transposed else -1]
        return 2 * summed * _elements(outputs[0])
    if base in _CONVOLUTIONS:
        kernel = inputs[_KERNEL]
        positions = _elements(_CONVOLUTIONS[base](inputs, outputs)) // kernel.shape[-1]
        return 2 * _elements(kernel) * positions
    if base == "DepthwiseConv2dNative":
        kernel = inputs[_KERNEL]
        positions = _elements(outputs[0]) // math.prod(kernel.shape[-2:])
        return 2 * _elements(kernel) * positions
    if base == "Einsum":
        return 2 * _terms(_attribute(attributes, "equation"), inputs)
    if base == "CudnnRNN":  # of (steps, examples, ...) with all parameters
        return 2 * math.prod(inputs[0].shape[:2]) * _elements(inputs[3])
    return 0


def _terms(equation, inputs):
    """The products that an Einsum adds up; 0 if it only sums or moves one tensor."""
    if len(inputs) < 2:
        return 0
    equation = equation.decode() if isinstance(equation, bytes) else equation
    sizes, broadcast = {}, 1
    for labels, tensor in zip(equation.partition("->")[0].split(","), inputs, strict=True):
        before, ellipsis, after = labels.partition("...")
        shape = list(tensor.shape)
        middle = shape[len(before) : len(shape) - len(after)] if ellipsis else []
        broadcast = max(broadcast, math.prod(middle))
        sizes.update(zip(before, shape, strict=False))
        sizes.update(zip(after, shape[len(shape) - len(after) :], strict=True))
    return math.prod(sizes.values()) * broadcast


def _attribute(attributes, name):
    """An attribute of a flat sequence of names and values."""
    return dict(zip(attributes[::2], attributes[1::2], strict=True)).get(name)


def _elements(tensor):
    return math.prod(tensor.shape)
