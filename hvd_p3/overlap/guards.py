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


def run(owner):
    """Applies the updates that are pending on an object, if it has guards."""
    for reference in vars(owner).get(_GUARDS, ()):
        pending_update = reference()
        if pending_update is not None:
            pending_update.guard()
