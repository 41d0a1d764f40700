"""Notices to the user, each said once, on rank 0."""

import warnings

from hvd_p3 import process

_said = set()


def train_immediately(reason):
    """Says why training is in immediate mode.

    Args:
        reason: str that ends the sentence "Training in immediate mode: ...".
    """
    if reason in _said or process.rank() != 0:
        return
    _said.add(reason)
    warnings.warn(f"Training in immediate mode: {reason}.", stacklevel=2)
