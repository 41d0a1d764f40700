"""Finds out which layers a model calls, in which order, and with what."""

import contextlib
import dataclasses

import keras


@dataclasses.dataclass
class LayerCall:
    """A call of a layer that is no model.

    Args:
        layer: `keras.layers.Layer`.
        arguments: tuple.
        keywords: dict.
        outputs: What the layer returned.
    """

    layer: object
    arguments: tuple
    keywords: dict
    outputs: object


def record(model, inputs):
    """Calls a model eagerly in training mode, and lists its layers' calls.

    Models inside are opened; layers that call layers are taken as one.

    Args:
        model: `keras.Model`.
        inputs: What it is called with.

    Returns:
        List of `LayerCall`, in the order of the calls.
    """
    calls = []
    with _calls_go_to(calls):
        model(inputs, training=True)
    return calls


@contextlib.contextmanager
def _calls_go_to(calls):
    original = keras.layers.Layer.__call__
    inside = False

    def call(self, *arguments, **keywords):
        nonlocal inside
        if inside or isinstance(self, keras.Model):
            return original(self, *arguments, **keywords)
        inside = True
        try:
            outputs = original(self, *arguments, **keywords)
        finally:
            inside = False
        calls.append(LayerCall(self, arguments, keywords, outputs))
        return outputs

    keras.layers.Layer.__call__ = call
    try:
        yield
    finally:
        keras.layers.Layer.__call__ = original
