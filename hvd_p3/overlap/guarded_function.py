"""Functions that were traced before the variables they use had guards.

Nothing in such a function's graph waits for an update. So the guards run before each call of it:
eagerly, or in the graph of the function that calls it. The same is done for functions that were
traced with earlier hyper-parameters of the optimizer.
"""

import gc

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from hvd_p3 import subclassing
from hvd_p3.overlap import guards
from hvd_p3.variables import resource_of


class _GuardedCall:
    """Mixed into the class of a traced function. All calls from Python go through `_call_flat`."""

    def _call_flat(self, *args, **kwargs):
        guards.run(self)
        outputs = super()._call_flat(*args, **kwargs)
        if tf.executing_eagerly():
            # A train function from before may push with earlier hyper-parameters, which guards in
            # functions traced since do not know.
            guards.run(self)
        return outputs


def attach_to_traced_functions(pending_update_of):
    """Guards the calls of all functions that have been traced so far and use guarded variables.

    Args:
        pending_update_of: List of (`tf.Variable`, `PendingUpdate`): the variables that are guarded
            from now on.
    """
    by_handle = {id(resource_of(variable)): pending for variable, pending in pending_update_of}
    for function in gc.get_objects():
        # isinstance would ask proxies for the class of what they stand for, and is slower.
        if ConcreteFunction not in type(function).__mro__:
            continue
        captured = [id(tensor) for tensor in function.graph.external_captures]
        used = {by_handle[each] for each in captured if each in by_handle}
        if used:
            guards.add(function, list(used))
            subclassing.mix_in(function, _GuardedCall)
