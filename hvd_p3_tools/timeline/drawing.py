"""Draws a part of a timeline: for each rank when its forward pass waited, which slices were in
flight, and how many bytes.
"""

from pathlib import Path

import matplotlib
import matplotlib.ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hvd_p3_tools.timeline.boxes import collection, normalization, shares
from hvd_p3_tools.timeline.model import cut

_DOTS_PER_INCH = 150
_WIDTH = 9  # inches
_RANK_HEIGHT = 1.5
_FONTS = {"font.size": 9, "axes.titlesize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8}
_WAIT_COLOR = "#D55E00"
# Bottom and top of each row of a rank.
_ROWS = {"forward waits": (2.25, 2.75), "slices in flight": (1.08, 2.08), "bytes in flight": (0, 1)}


@matplotlib.rc_context(_FONTS)
def draw(timeline, start, end, path):
    """Writes a PNG. Slices in flight at once share the height of their row; their colour is their
    priority.

    Args:
        timeline: `model.Timeline` with at least one rank.
        start, end: int, what to draw, in nanoseconds.
        path: str or path of the PNG.

    Raises:
        OSError: If the file cannot be written.
    """
    ranks = timeline.ranks
    figure = Figure(
        figsize=(_WIDTH, 0.9 + _RANK_HEIGHT * len(ranks)), dpi=_DOTS_PER_INCH, layout="constrained"
    )
    axes = figure.subplots(len(ranks), sharex=True, squeeze=False)[:, 0]
    priorities = [each.priority for rank in ranks for each in rank.slices] or [0]
    norm = normalization(priorities)
    most = max((size for rank in ranks for _, size in rank.bytes_in_flight), default=0)
    for rank, axis in zip(ranks, axes, strict=True):
        slices = _draw_rank(axis, rank, start, end, norm, most)
        axis.set_xlim(start / 1e6, end / 1e6)
        host = f" on {rank.host}" if rank.host else ""
        axis.set_title(f"rank {rank.number}{host}", loc="left")
    axes[-1].set_xlabel("time since the start of the recording (ms)")
    bar = figure.colorbar(slices, ax=axes, pad=0.015, aspect=15 * len(ranks))
    bar.set_label("priority (0: used first)")
    bar.locator = matplotlib.ticker.MaxNLocator(integer=True)
    bar.ax.invert_yaxis()
    FigureCanvasAgg(figure)
    figure.savefig(Path(path), dpi=_DOTS_PER_INCH, facecolor="white", format="png")


def _draw_rank(axis, rank, start, end, norm, most):
    low, high = _ROWS["forward waits"]
    waits = cut([(each.start, each.end) for each in rank.waits], start, end)
    bars = [(first / 1e6, (last - first) / 1e6) for first, last in waits]
    axis.broken_barh(bars, (low, high - low), color=_WAIT_COLOR, linewidth=0)

    low, high = _ROWS["slices in flight"]
    shown = [
        (max(each.start, start), min(each.end, end), each.priority)
        for each in rank.slices
        if each.start < end and each.end > start and each.start < each.end
    ]
    boxes = [
        (first / 1e6, last / 1e6, low + (high - low) * bottom, low + (high - low) * top, priority)
        for first, last, bottom, top, priority in shares(shown)
    ]
    slices = axis.add_collection(collection(boxes, norm))

    times, heights = _steps(rank.bytes_in_flight, start, end)
    scaled = [0.92 * height / most if most else 0 for height in heights]
    axis.fill_between(
        [time / 1e6 for time in times], scaled, step="post", color="#999999", linewidth=0
    )
    if most:
        axis.annotate(
            f"{most / 1e6:.3g} MB",
            (1, 0.92),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=7,
        )
        axis.axhline(0.92, color="#999999", linewidth=0.5, linestyle=":")
    axis.set_yticks([(low + high) / 2 for low, high in _ROWS.values()], _ROWS)
    axis.set_ylim(-0.06, 2.85)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right"]].set_visible(False)
    return slices


def _steps(changes, start, end):
    """The value of a counter from one time to another, as the corners of a step function."""
    before = [size for time, size in changes if time <= start]
    within = [(time, size) for time, size in changes if start < time < end]
    corners = [(start, before[-1] if before else 0), *within]
    corners.append((end, corners[-1][1]))
    return zip(*corners, strict=True)
