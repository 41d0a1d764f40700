"""A Keras model with the gradients of a well-known one, which takes a set time to compute."""

import ctypes

import keras
import numpy as np
import tensorflow as tf

from benchmarks import native
from hvd_p3_tools.planner import model_tables as models

_library = tf.load_op_library(str(native.REPLAY_OPS))
_functions = ctypes.CDLL(str(native.REPLAY_OPS))
_set_time_scale = _functions.hvd_p3_replay_set_time_scale
_set_time_scale.argtypes = [ctypes.c_double]
_record = _functions.hvd_p3_replay_record
_record.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_size_t]
_record.restype = ctypes.c_size_t


def set_step_time(seconds):
    """Sets how long forward and backward pass of a replayed model take together, in seconds."""
    _set_time_scale(seconds)


def last_steps(table, steps):
    """Returns when each layer was computed in the last whole steps.

    Args:
        table: `model_tables.ModelTable` of the model that has run.
        steps: int.

    Returns:
        A list for each step, oldest first, of dicts of `name`, `priority`, `start_s` and `end_s`,
        in seconds of the steady clock.
    """
    layers = len(table.layers)
    times = np.zeros((2 * layers * steps, 2))
    pointer = times.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    if _record(pointer, len(times)) < len(times):
        raise ValueError(
            f"the record holds fewer than {steps} steps of {table.name}; measure fewer --steps"
        )
    order = [*range(layers), *reversed(range(layers))]  # forward, then backward
    return [
        [
            {
                "name": table.layers[layer].name,
                "priority": layer,
                "start_s": start_s,
                "end_s": end_s,
            }
            for layer, (start_s, end_s) in zip(order, of_step.tolist(), strict=True)
        ]
        for of_step in times.reshape(steps, 2 * layers, 2)
    ]


@tf.RegisterGradient("HvdP3ReplayForward")
def _replay_backward(operation, dy):
    variables = operation.inputs[1:]
    dx, gradients = _library.hvd_p3_replay_backward(
        dy,
        seconds=operation.get_attr("backward_seconds"),
        shapes=[variable.shape for variable in variables],
        N=len(variables),
    )
    return [dx, *gradients]


class ReplayLayer(keras.layers.Layer):
    """Reads its variables, passes its input on after a set time, and makes gradients.

    Args:
        layer: `model_tables.Layer`.
        forward_s: float. Seconds of the forward pass.
        backward_s: float. Seconds of the backward pass.
    """

    def __init__(self, layer, forward_s, backward_s):
        super().__init__(name=layer.name)
        self._forward_s = forward_s
        self._backward_s = backward_s
        self._replayed = [
            self.add_weight(name=variable.name, shape=variable.shape, initializer="zeros")
            for variable in layer.variables
        ]

    def call(self, x):
        return _library.hvd_p3_replay_forward(
            x,
            [tf.convert_to_tensor(variable) for variable in self._replayed],
            seconds=self._forward_s,
            backward_seconds=self._backward_s,
        )


class _ReplayModel(keras.Model):
    def __init__(self, table):
        super().__init__(name=table.name)
        times = models.step_times(table, 1.0)
        self._replayed = [
            ReplayLayer(layer, forward_s, backward_s)
            for layer, (forward_s, backward_s) in zip(table.layers, times, strict=True)
        ]

    def build(self, shape):
        super().build(shape)  # the layers have made their variables

    def call(self, x):
        for layer in self._replayed:
            x = layer(x)
        return x


def make_model(table):
    """Makes the model of a table, one layer after the other.

    A step takes one second until `set_step_time`.

    Args:
        table: `model_tables.ModelTable`.

    Returns:
        A built `keras.Model` with one number as input and output.
    """
    model = _ReplayModel(table)
    model.build((None, 1))
    return model


def make_data():
    """Returns an endless `tf.data.Dataset` for the model."""
    one = np.zeros((1, 1), "float32")
    return tf.data.Dataset.from_tensors((one, one)).repeat()
