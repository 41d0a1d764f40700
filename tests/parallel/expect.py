"""Expectations that checks share."""

import contextlib

import numpy as np


@contextlib.contextmanager
def raises(error, *parts):
    """A context that must raise `error` with all `parts` in its message."""
    try:
        yield
    except error as raised:
        message = str(raised)
        for part in parts:
            assert part in message, f"{part!r} is not in the message: {message}"
    else:
        raise AssertionError(f"{error.__name__} was not raised")


def same_bits(actual, expected, what):
    """Fails unless two arrays have the same dtype, shape and bits."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype} and {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: {actual.shape} and {expected.shape}"
    if actual.tobytes() != expected.tobytes():
        difference = np.max(np.abs(actual.astype("float64") - expected.astype("float64")))
        raise AssertionError(f"{what}: bits differ, values by up to {difference}")
