"""Puts a guard into every access of a TensorFlow variable.

Whatever reads or writes a variable takes its handle: Keras layers and optimizers, conversion to a
tensor, saving, `tf.train.Checkpoint`, `get_weights`, and code that holds the `tf.Variable` itself.
TensorFlow's Python code takes the property `handle`, which returns the attribute `_handle`; its
eager fast path in C++ takes the attribute itself. `attach` gives the variable a subclass of its own
class in which `_handle` calls the guard first.
"""

import sys

from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import resource_variable_ops

from hvd_p3 import subclassing
from hvd_p3.overlap import guards
from hvd_p3.variables import resource_of


class _GuardedAccess:
    """Mixed into the class of a guarded variable."""

    @property
    def _handle(self):
        guards.run(self, unless_in=_graph_being_called())
        return resource_of(self)

    @_handle.setter
    def _handle(self, handle):
        vars(self)["_handle"] = handle

    @property
    def device(self):
        return resource_of(self).device  # no access of the value


# What TensorFlow calls for each variable of a traced function when another function calls it. It
# asks whether the handle is an input of the calling function.
_WATCH_VARIABLE = FuncGraph.watch_variable.__code__
_CALL_FLAT = ConcreteFunction._call_flat.__code__
_HANDLE = resource_variable_ops.BaseResourceVariable.handle.fget.__code__


def _graph_being_called():
    """Returns the graph of the function for whose call TensorFlow takes the handle, or `None`.

    There it takes the handle for its identity, not for the value. A guard would wait for all
    variables of the function, and so undo the guards in it, each of which waits for one. Keras's
    train function calls its training step in this way.
    """
    accessor = sys._getframe(2)  # behind this function and `_handle`
    if accessor.f_code is _HANDLE:
        accessor = accessor.f_back
    if accessor.f_code is not _WATCH_VARIABLE:
        return None
    caller = accessor.f_back
    while caller is not None and caller.f_code is not _CALL_FLAT:
        caller = caller.f_back
    return None if caller is None else caller.f_locals["self"].graph


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
