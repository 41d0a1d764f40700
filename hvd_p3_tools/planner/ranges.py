"""Lists and ranges of values, such as `2,4,8`, `2..4096` and `1Gbit/s..100Gbit/s`."""

import re

from hvd_p3_tools.planner import units
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.simulation.cluster import MOST_RANKS

_SEPARATOR = re.compile(r"\s*,\s*")


def ranks(text, name="--ranks"):
    """Reads numbers of ranks. A range doubles from its start on, and ends with its end.

    Example:

    ```python
    ranges.ranks("2..12")  # [2, 4, 8, 12]
    ```

    Args:
        text: str.
        name: str. What it is, for the error.

    Returns:
        List of int, each from 1 to 1048576.

    Raises:
        PlannerError: If it is none.
    """

    def parse(each):
        if not (each.isascii() and each.isdigit() and 1 <= int(each[:9]) <= MOST_RANKS):
            raise PlannerError(
                f"{name} must be numbers from 1 to {MOST_RANKS}, such as 4, 2,4,8 or 2..4096. "
                f"Received: {text}"
            )
        return int(each[:9])

    return _read(text, name, parse)


def bandwidths(text, name="--bandwidth"):
    """Reads bandwidths. A range doubles from its start on, and ends with its end.

    Args:
        text: str, such as `"1Gbit/s,10Gbit/s"`.
        name: str. What it is, for the error.

    Returns:
        List of float, bytes per second.

    Raises:
        PlannerError: If it is none.
    """
    return _read(text, name, lambda each: units.bandwidth(each, name))


def _read(text, name, parse):
    values = []
    for part in _SEPARATOR.split(text.strip()):
        start, separator, end = part.partition("..")
        first = parse(start.strip())
        if not separator:
            values.append(first)
            continue
        last = parse(end.strip())
        if first > last:
            raise PlannerError(f"{name} must not have a range that ends before it starts: {part}")
        while first < last:
            values.append(first)
            first *= 2
        values.append(last)
    return list(dict.fromkeys(values))
