"""Layers that stay local: ranks do not reduce their gradients."""

import keras


def trainable_variables(local_layers):
    """Returns the trainable variables of the argument `local_layers` of public functions.

    Args:
        local_layers: `None`, a `keras.Layer`, or an iterable of them.

    Raises:
        TypeError: If it is something else.
        ValueError: If a layer is not built, so that its variables are not known yet.
    """
    if local_layers is None:
        return []
    if isinstance(local_layers, keras.Layer):
        local_layers = [local_layers]
    try:
        layers = list(local_layers)
    except TypeError:
        layers = [local_layers]
    for layer in layers:
        if not isinstance(layer, keras.Layer):
            raise TypeError(
                "local_layers must be a Keras layer or a list of Keras layers. "
                f"Received: {layer!r} of type {type(layer)}"
            )
        if not layer.built:
            raise ValueError(
                f"local_layers needs layers that are built, and '{layer.name}' is not: its "
                "variables are not known yet. Build the model first, for example with "
                "model.build(input_shape)."
            )
    return [variable for layer in layers for variable in layer.trainable_variables]
