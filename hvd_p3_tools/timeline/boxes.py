"""Boxes for drawing what goes on at the same time, coloured by priority."""

import collections
import itertools

import matplotlib
import matplotlib.collections
import matplotlib.colors

# The light end of the map would look like waiting.
COLORS = matplotlib.colors.ListedColormap(
    matplotlib.colormaps["viridis"]([0.93 * step / 255 for step in range(256)])
)


def normalization(priorities):
    """Returns what maps priorities to `COLORS`.

    Args:
        priorities: list of int, not empty.
    """
    return matplotlib.colors.Normalize(min(priorities), max(*priorities, min(priorities) + 1))


def shares(intervals):
    """Yields boxes that divide the height among the intervals that are going on.

    Args:
        intervals: iterable of (start, end, priority).

    Yields:
        Start, end, bottom and top (from 0 to 1), and priority. The most urgent are at the top.
    """
    waiting = collections.deque(sorted(intervals))
    changes = sorted({time for start, end, _ in waiting for time in (start, end)})
    active = []
    for first, last in itertools.pairwise(changes):
        active = [each for each in active if each[1] > first]
        while waiting and waiting[0][0] <= first:
            active.append(waiting.popleft())
        active.sort(key=lambda each: -each[2])
        for index, (_, _, priority) in enumerate(active):
            yield first, last, index / len(active), (index + 1) / len(active), priority


def collection(boxes, norm):
    """Returns boxes as something to add to an axis.

    Args:
        boxes: list of (left, right, low, high, priority).
        norm: Of `normalization`.
    """
    corners = [
        [(left, low), (right, low), (right, high), (left, high)]
        for left, right, low, high, _ in boxes
    ]
    priorities = [priority for *_, priority in boxes]
    return matplotlib.collections.PolyCollection(
        corners, array=priorities, cmap=COLORS, norm=norm, linewidths=0, antialiased=False
    )
