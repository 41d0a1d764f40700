"""Times TensorFlow functions."""

import functools
import math
import time

import tensorflow as tf

_LEAST_TIMING_S = 2e-3  # shorter ones are repeated and timed together
_MOST_CALLS = 100


def least_s(function, repeats):
    """Times a function, after it was traced and run once.

    Args:
        function: Function without arguments, of TensorFlow ops.
        repeats: int.

    Returns:
        float, seconds: the least, which other work on the machine has disturbed least, without what
        a call of a function that does nothing takes.
    """
    return max(0.0, _call_s(function, repeats) - _empty_call_s(repeats))


def _call_s(function, repeats):
    traced = tf.function(function, jit_compile=False)
    traced()
    first_s = _timed(traced, 1)
    calls = min(_MOST_CALLS, math.ceil(_LEAST_TIMING_S / max(first_s, 1e-9)))
    return min(_timed(traced, calls) for _ in range(repeats))


@functools.cache
def _empty_call_s(repeats):
    return _call_s(lambda: [], repeats)


def _timed(traced, calls):
    """Seconds of a call, on average over some."""
    tf.test.experimental.sync_devices()
    start = time.perf_counter()
    for _ in range(calls):
        traced()
        # One at a time: calls that overlap would hide what an empty call takes.
        tf.test.experimental.sync_devices()
    return (time.perf_counter() - start) / calls


def passes_s(call, watched, repeats):
    """Times a forward pass, and what the backward pass adds to it.

    Args:
        call: Function without arguments that returns the outputs.
        watched: list of tensors and variables, of which gradients are taken.
        repeats: int.

    Returns:
        (float, float): seconds of the forward and of the backward pass.
    """

    def differentiate():
        with tf.GradientTape() as tape:
            tape.watch([each for each in watched if isinstance(each, tf.Tensor)])
            outputs = floating(call())
        gradients = tape.gradient(outputs, watched, unconnected_gradients="zero")
        # The outputs too: what gradients do not need would be left out of the graph.
        return [*outputs, *(each for each in tf.nest.flatten(gradients) if each is not None)]

    forward_s = least_s(lambda: tf.nest.flatten(call()), repeats)
    if not watched:
        return forward_s, 0.0
    return forward_s, max(0.0, least_s(differentiate, repeats) - forward_s)


def floating(structure):
    """Returns the tensors of a structure that gradients go through, as a flat list."""
    return [
        each
        for each in tf.nest.flatten(structure)
        if isinstance(each, tf.Tensor) and each.dtype.is_floating
    ]
