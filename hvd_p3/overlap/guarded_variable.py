"""Puts a guard into every access of a Keras variable.

Layers, optimizers, saving, `tf.train.Checkpoint`, `get_weights` and conversion to a tensor all go
through `keras.Variable.value`; assignments go through `_direct_assign`. `attach` gives a variable a
subclass of its own class that calls the guard first in both.
"""

import functools

import keras

_GUARD = "_hvd_p3_guard"


class _GuardedAccess:
    """Mixed into the class of a guarded variable."""

    @property
    def value(self):
        self.__dict__[_GUARD].guard()
        return super().value

    def _direct_assign(self, value):
        self.__dict__[_GUARD].guard()
        return super()._direct_assign(value)

    def __repr__(self):
        self.__dict__[_GUARD].guard()
        return super().__repr__()


@functools.cache
def _guarded_class(variable_class):
    return type(
        variable_class.__name__,
        (_GuardedAccess, variable_class),
        {"__module__": variable_class.__module__, "__doc__": variable_class.__doc__},
    )


def attach(variable, pending_update):
    """Guards a variable from now on.

    Args:
        variable: `keras.Variable`: a model's variable, or an optimizer's state for it.
        pending_update: `PendingUpdate` whose `guard` runs before each access.
    """
    variable.__dict__[_GUARD] = pending_update
    if not isinstance(variable, _GuardedAccess):
        variable.__class__ = _guarded_class(type(variable))


def can_attach(variable):
    """Whether the variable is of a kind that can be guarded."""
    return isinstance(variable, keras.Variable)
