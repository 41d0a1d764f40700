"""Names of gradients that are the same on all ranks.

Keras numbers layers that have no name by a counter of the process, so the same model is
`dense/kernel` on one rank and `dense_3/kernel` on a rank that built other models before. Counting
from the lowest number that occurs keeps the order visible and makes both `dense/kernel`.
"""

import re

_NUMBERED = re.compile(r"^(.*?)(?:_(\d+))?$")


def rank_independent(paths):
    """Returns variable paths with the numbers in each part relative to the lowest one.

    Args:
        paths: List of str, such as `"dense_3/kernel"`.

    Returns:
        A list of str of the same length, such as `"dense/kernel"` for the lowest and
        `"dense+1/kernel"` for the next.
    """
    split = [[_NUMBERED.match(part).groups() for part in path.split("/")] for path in paths]
    lowest = {}
    for parts in split:
        for key, number in _numbers(parts):
            lowest[key] = min(lowest.get(key, number), number)
    names = []
    for parts in split:
        renamed = []
        for (depth, base), number in _numbers(parts):
            above = number - lowest[depth, base]
            renamed.append(f"{base}+{above}" if above else base)
        names.append("/".join(renamed))
    return names


def _numbers(parts):
    """Yields ((depth, name without number), number), where no number counts as 0."""
    for depth, (base, number) in enumerate(parts):
        yield (depth, base), int(number or 0)
