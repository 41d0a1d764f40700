"""Puts a guard into every access of a TensorFlow variable.

Whatever reads or writes a variable takes its handle: Keras layers and optimizers, conversion to a
tensor, saving, `tf.train.Checkpoint`, `get_weights`, and code that holds the `tf.Variable` itself.
TensorFlow's Python code takes the property `handle`, which returns the attribute `_handle`; its
eager fast path in C++ takes the attribute itself. `attach` gives the variable a subclass of its own
class in which `_handle` calls the guard first.
"""

from tensorflow.python.ops import resource_variable_ops

from hvd_p3 import subclassing
from hvd_p3.overlap import guards
from hvd_p3.variables import resource_of


class _GuardedAccess:
    """Mixed into the class of a guarded variable."""

    @property
    def _handle(self):
        guards.run(self)
        return resource_of(self)

    @_handle.setter
    def _handle(self, handle):
        vars(self)["_handle"] = handle

    @property
    def device(self):
        return resource_of(self).device  # no access of the value


def attach(variable, pending_update):
    """Guards a variable from now on.

    A variable that several optimizers update has a guard for each. Those of earlier optimizers are
    settled first.

    Args:
        variable: `tf.Variable`: a model's variable, or an optimizer's state for it.
        pending_update: `PendingUpdate` whose `guard` runs before each access.
    """
    guards.run(variable)
    guards.add(variable, [pending_update])
    subclassing.mix_in(variable, _GuardedAccess)


def can_attach(variable):
    """Whether the `tf.Variable` is of a kind that can be guarded."""
    return isinstance(variable, resource_variable_ops.BaseResourceVariable)
