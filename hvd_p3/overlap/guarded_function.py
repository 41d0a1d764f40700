"""Functions that were traced before the variables they use had guards.

Nothing in such a function's graph waits for an update. So the guards run before each call of it:
eagerly, or in the graph of the function that calls it.
"""

import functools
import gc
import types
import weakref

from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

_GUARDS = "_hvd_p3_guards"


class _GuardedCall:
    """Mixed into the class of a traced function. All calls from Python go through `_call_flat`."""

    def _call_flat(self, *args, **kwargs):
        for reference in vars(self)[_GUARDS]:
            pending_update = reference()
            if pending_update is not None:
                pending_update.guard()
        return super()._call_flat(*args, **kwargs)


@functools.cache
def _guarded_class(function_class):
    guarded = types.new_class(function_class.__name__, (_GuardedCall, function_class))
    guarded.__module__ = function_class.__module__
    guarded.__doc__ = function_class.__doc__
    return guarded


def attach_to_traced_functions(guards):
    """Guards the calls of all functions that have been traced so far and use guarded variables.

    Args:
        guards: List of (`tf.Variable`, `PendingUpdate`): the variables that are guarded since.
    """
    by_handle = {id(variable._handle): pending for variable, pending in guards}
    for function in gc.get_objects():
        # isinstance would ask proxies for the class of what they stand for, and is slower.
        if ConcreteFunction not in type(function).__mro__:
            continue
        captured = [id(tensor) for tensor in function.graph.external_captures]
        used = {by_handle[each] for each in captured if each in by_handle}
        if not used:
            continue
        vars(function).setdefault(_GUARDS, []).extend(weakref.ref(pending) for pending in used)
        if not isinstance(function, _GuardedCall):
            function.__class__ = _guarded_class(type(function))
