"""Checks of values that users give."""

import reprlib

from hvd_p3_tools.planner.errors import PlannerError


def require(fits, name, requirement, received):
    """Raises a `PlannerError` that names a value, unless it fits.

    Args:
        fits: bool.
        name: str, what the value is.
        requirement: str, what it must be.
        received: The value.
    """
    if not fits:
        raise PlannerError(f"{name} must be {requirement}. Received: {reprlib.repr(received)}")


def is_integer(value):
    """Returns whether a value is an int, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value):
    """Returns whether a value is an int or float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
