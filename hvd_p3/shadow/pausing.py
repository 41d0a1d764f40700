"""Keeps synchronisation away from a model that is being saved or loaded."""

import functools

# What saves, loads, reads or sets all weights of a Keras model.
_METHODS = (
    "save",
    "save_weights",
    "load_weights",
    "get_weights",
    "set_weights",
    "export",
    "quantize",
    "set_state_tree",
    "get_state_tree",
)


def protect(model, session):
    """Pauses a session during calls of the model's methods that save or load.

    Puts functions into the object in front of its methods. Its class stays as it is, since Keras
    saves the name under which a class is registered.

    Args:
        model: `keras.Model`.
        session: `Session`.
    """
    for name in _METHODS:
        method = getattr(model, name, None)
        if method is not None:
            vars(model)[name] = _paused(method, session)


def _paused(method, session):
    @functools.wraps(method)
    def call(*arguments, **keywords):
        with session.paused():
            return method(*arguments, **keywords)

    return call


def release(model):
    """Undoes `protect`."""
    for name in _METHODS:
        vars(model).pop(name, None)
