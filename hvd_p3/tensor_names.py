"""Names of gradients that are the same on all ranks.

Keras numbers layers that have no name by a counter of the process, so the same model is
`dense/kernel` on one rank and `dense_3/kernel` on a rank that built other models before. Counting
from the lowest number that occurs keeps the order visible and makes both `dense/kernel`.

The model's own name goes, since it is in the paths of a model that was built, and not in those of
the same model that was loaded from a file.
"""

import re

_NUMBERED = re.compile(r"^(.*?)(?:_(\d+))?$")


def rank_independent(paths):
    """Returns variable paths without the model's name, and with numbers relative to the lowest one.

    Args:
        paths: List of str, such as `"dense_3/kernel"`.

    Returns:
        A list of str of the same length, such as `"dense/kernel"` for the lowest and
        `"dense+1/kernel"` for the next.
    """
    split = [[_NUMBERED.match(part).groups() for part in path.split("/")] for path in paths]
    # A layer and its variable remain.
    while split and min(map(len, split)) > 2 and all(parts[0] == split[0][0] for parts in split):
        split = [parts[1:] for parts in split]
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
