"""The guards of an object: pending updates that are applied before it is used."""

import weakref

_GUARDS = "_hvd_p3_guards"


def add(owner, pending_updates):
    """Adds guards. Those of `owner` from before are held weakly from now on: they end with their
    optimizer.

    Args:
        owner: A `tf.Variable` or a traced function.
        pending_updates: List of `PendingUpdate`s.
    """
    earlier = [reference() for reference in vars(owner).get(_GUARDS, ())]
    references = [weakref.ref(each) for each in earlier if each is not None]
    vars(owner)[_GUARDS] = references + [lambda each=each: each for each in pending_updates]


def has_any(owner):
    """Whether an object has guards whose optimizer is still in use.

    Args:
        owner: A `tf.Variable` or a traced function.
    """
    return any(reference() is not None for reference in vars(owner).get(_GUARDS, ()))


def run(owner, unless_in=None):
    """Applies the updates that are pending on an object, if it has guards.

    Args:
        owner: A `tf.Variable` or a traced function.
        unless_in: Optional `FuncGraph`. Updates for which this graph has guards are left to it.
    """
    for reference in vars(owner).get(_GUARDS, ()):
        pending_update = reference()
        if pending_update is not None and not (
            unless_in is not None and pending_update.has_guard_in(unless_in)
        ):
            pending_update.guard()
