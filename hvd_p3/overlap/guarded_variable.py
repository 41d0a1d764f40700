"""Puts a guard into every access of a Keras variable.

Layers, optimizers, saving, `tf.train.Checkpoint`, `get_weights` and conversion to a tensor all go
through `keras.Variable.value`; assignments go through `_direct_assign`. `attach` gives a variable a
subclass of its own class that calls the guard first in both.
"""

import functools
import weakref

import keras

_GUARDS = "_hvd_p3_guards"


class _GuardedAccess:
    """Mixed into the class of a guarded variable."""

    @property
    def value(self):
        _run_guards(self)
        return super().value

    def _direct_assign(self, value):
        _run_guards(self)
        return super()._direct_assign(value)

    def __repr__(self):
        _run_guards(self)
        return super().__repr__()


def _run_guards(variable):
    for reference in variable.__dict__[_GUARDS]:
        pending_update = reference()
        if pending_update is not None:
            pending_update.guard()


@functools.cache
def _guarded_class(variable_class):
    return type(
        variable_class.__name__,
        (_GuardedAccess, variable_class),
        {"__module__": variable_class.__module__, "__doc__": variable_class.__doc__},
    )


def attach(variable, pending_update):
    """Guards a variable from now on.

    A variable that several optimizers update has a guard for each. Those of earlier optimizers are
    settled first and then held weakly: they end with their optimizer.

    Args:
        variable: `keras.Variable`: a model's variable, or an optimizer's state for it.
        pending_update: `PendingUpdate` whose `guard` runs before each access.
    """
    if isinstance(variable, _GuardedAccess):
        _run_guards(variable)
    earlier = [reference() for reference in variable.__dict__.get(_GUARDS, [])]
    references = [weakref.ref(each) for each in earlier if each is not None]
    variable.__dict__[_GUARDS] = [*references, lambda: pending_update]
    if not isinstance(variable, _GuardedAccess):
        variable.__class__ = _guarded_class(type(variable))


def can_attach(variable):
    """Whether the variable is of a kind that can be guarded."""
    return isinstance(variable, keras.Variable)
