"""Puts a guard into every access of a TensorFlow variable.

Whatever reads or writes a variable takes its handle: Keras layers and optimizers, conversion to a
tensor, saving, `tf.train.Checkpoint`, `get_weights`, and code that holds the `tf.Variable` itself.
`attach` gives the variable a subclass of its own class whose `handle` calls the guard first.
"""

import functools
import types
import weakref

from tensorflow.python.ops import resource_variable_ops

_GUARDS = "_hvd_p3_guards"


class _GuardedAccess:
    """Mixed into the class of a guarded variable."""

    @property
    def handle(self):
        run_guards(self)
        return self._handle

    @property
    def device(self):
        return self._handle.device  # no access of the value


def run_guards(variable):
    """Applies the updates that are pending on a `tf.Variable`, guarded or not."""
    for reference in vars(variable).get(_GUARDS, ()):
        pending_update = reference()
        if pending_update is not None:
            pending_update.guard()


@functools.cache
def _guarded_class(variable_class):
    # new_class finds the metaclass of TensorFlow's variables.
    guarded = types.new_class(variable_class.__name__, (_GuardedAccess, variable_class))
    guarded.__module__ = variable_class.__module__
    guarded.__doc__ = variable_class.__doc__
    return guarded


def attach(variable, pending_update):
    """Guards a variable from now on.

    A variable that several optimizers update has a guard for each. Those of earlier optimizers are
    settled first and then held weakly: they end with their optimizer.

    Args:
        variable: `tf.Variable`: a model's variable, or an optimizer's state for it.
        pending_update: `PendingUpdate` whose `guard` runs before each access.
    """
    run_guards(variable)
    earlier = [reference() for reference in vars(variable).get(_GUARDS, ())]
    references = [weakref.ref(each) for each in earlier if each is not None]
    vars(variable)[_GUARDS] = [*references, lambda: pending_update]
    if not isinstance(variable, _GuardedAccess):
        variable.__class__ = _guarded_class(type(variable))


def can_attach(variable):
    """Whether the `tf.Variable` is of a kind that can be guarded."""
    return isinstance(variable, resource_variable_ops.BaseResourceVariable)
