"""Keeps synchronisation away from a model that is being saved or loaded."""

import functools

# What saves, loads, reads or sets all weights of a Keras model, and whether it sets them.
METHODS = {
    "save": False,
    "save_weights": False,
    "load_weights": True,
    "get_weights": False,
    "set_weights": True,
    "export": False,
    "set_state_tree": True,
    "get_state_tree": False,
}


class Protection:
    """Pauses a session during calls of a model's methods that save or load, until `release`.

    Puts functions into the object in front of its methods. Its class stays as it is, since Keras
    saves the name under which a class is registered.

    Args:
        model: `keras.Model`.
        session: `Session`.
    """

    def __init__(self, model, session):
        self._attributes = vars(model)
        self._before = {}
        for name, writes in METHODS.items():
            method = getattr(model, name, None)
            if method is not None:
                self._before[name] = self._attributes.get(name)
                self._attributes[name] = paused(method, session, writes)

    def release(self):
        for name, method in self._before.items():
            if method is None:
                self._attributes.pop(name, None)
            else:
                self._attributes[name] = method


def paused(method, session, writes):
    """A function that calls a method while a session is paused; see `Session.paused`."""

    @functools.wraps(method)
    def call(*arguments, **keywords):
        with session.paused(writes):
            return method(*arguments, **keywords)

    return call
