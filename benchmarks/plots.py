"""Draws the results of the benchmarks.

    python benchmarks/plots.py bench-results.json --folder docs/images

Each function takes the results, as loaded from `bench-results.json`, and a folder, which it makes
if needed. It returns the path of the PNG that it wrote, or None if the results lack its data.
Needs no display. Systems without a style below are not drawn.
"""

import argparse
import collections
import dataclasses
import json
import math
import statistics
from pathlib import Path

import matplotlib.lines
import matplotlib.ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hvd_p3_tools.timeline.boxes import collection, normalization, shares
from hvd_p3_tools.timeline.model import length

_DOTS_PER_INCH = 150
_WIDTH = 8  # inches: 1200 pixels
_PANEL_HEIGHT = 2.5
_COLUMNS = 3

_FONTS = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "figure.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
}
_BOUND = {"color": "black", "linewidth": 1.2, "linestyle": (0, (5, 3)), "zorder": 1.5}

_MODELS = {
    "vgg19": "VGG-19",
    "resnet50": "ResNet-50",
    "inception_v3": "Inception-v3",
    "sockeye": "Sockeye",
    "digits": "Digits",
}


@dataclasses.dataclass(frozen=True)
class _Style:
    color: str
    marker: str
    line: str = "-"
    width: float = 1.4


# The colours of Okabe and Ito, which colour-blind readers can tell apart. The lines with dots are
# parts of hvd_p3, not systems to choose.
_STYLES = {
    "stock-horovod-mpi": _Style("#D55E00", "o"),
    "stock-horovod-mpi-tuned": _Style("#E69F00", "s"),
    "stock-horovod-gloo": _Style("#CC79A7", "D"),
    "hvd_p3-immediate": _Style("#56B4E9", "^"),
    "hvd_p3-overlapped": _Style("#0072B2", "v", width=2.2),
    "hvd_p3-slices-only": _Style("#009E73", "P", line=":"),
    "hvd_p3-priority-only": _Style("#666666", "X", line=":"),
    "no-communication": _Style("#999999", "_", line="--"),
}
_LANES = ("computation", "communication")


@dataclasses.dataclass(frozen=True)
class _Panel:
    title: str
    results: list


@matplotlib.rc_context(_FONTS)
def step_time(results, folder):
    """Draws the step time by the ratio of communication to computation, a panel for each model.

    Uses the number of hosts with most ratios, the larger of two.

    Args:
        results: dict, see the module.
        folder: str or path.

    Returns:
        The path of `step-time.png`, or None.
    """
    panels = _panels(_select(results, "ratio"), ("hosts",), _ratio, minimum=1)

    def draw(axis, drawn):
        _draw_relative_step_time(axis, drawn, _ratio)
        ratios = [_ratio(each) for each in drawn]
        axis.set_xscale("log")
        axis.set_xlim(min(0.25, *ratios) / 1.18, max(4, *ratios) * 1.18)
        _ticks(axis, [0.25, 0.5, 1, 2, 4])

    return _write_panels(
        panels,
        draw,
        ("r = ideal communication time / computation time", "step time / lower bound"),
        folder,
        "step-time.png",
    )


@matplotlib.rc_context(_FONTS)
def throughput(results, folder):
    """Draws the throughput by the bandwidth, relative to computation alone.

    A panel for each model with results at several bandwidths; uses the number of hosts with most
    bandwidths, the larger of two.

    Args:
        results: dict, see the module.
        folder: str or path.

    Returns:
        The path of `throughput.png`, or None.
    """
    panels = _panels(_select(results, "bandwidth"), ("hosts",), _bandwidth, minimum=2)

    def draw(axis, drawn):
        bounds = collections.defaultdict(list)
        for result in drawn:
            bounds[_bandwidth(result)].append(result["compute_s"] / result["lower_bound_s"])
        axis.plot(*zip(*_medians(bounds), strict=True), **_BOUND)
        _draw_systems(
            axis,
            drawn,
            _bandwidth,
            lambda result, seconds: result["compute_s"] / seconds,
        )
        axis.set_xscale("log")
        _ticks(axis, _round_values(min(bounds), max(bounds)))
        axis.set_ylim(0, max(1.05, axis.get_ylim()[1]))

    return _write_panels(
        panels,
        draw,
        ("bandwidth (Gbit/s)", "throughput, relative to linear scaling"),
        folder,
        "throughput.png",
    )


@matplotlib.rc_context(_FONTS)
def hosts(results, folder):
    """Draws the step time by the number of hosts.

    A panel for each model with results for several numbers of hosts at the same ratio of
    communication to computation or at the same bandwidth, whichever has more.

    Args:
        results: dict, see the module.
        folder: str or path.

    Returns:
        The path of `hosts.png`, or None.
    """
    panels = _panels(_select(results, "hosts"), ("r", "bandwidth"), _host_count, minimum=2)

    def draw(axis, drawn):
        _draw_relative_step_time(axis, drawn, _host_count)
        axis.set_xscale("log", base=2)
        _ticks(axis, sorted({_host_count(each) for each in drawn}))

    return _write_panels(panels, draw, ("hosts", "step time / lower bound"), folder, "hosts.png")


@matplotlib.rc_context(_FONTS)
def timeline(results, folder):
    """Draws one step under stock Horovod above one under hvd_p3, on the same axis of time.

    Uses the first model that has both, and hvd_p3's overlapped mode if there is a choice. Events
    of a lane that overlap share its height, so that it is white only when nothing goes on.

    Args:
        results: dict, see the module.
        folder: str or path.

    Returns:
        The path of `timeline.png`, or None.
    """
    entries = _entries_to_compare(results.get("timelines") or [])
    if not entries:
        return None
    figure = Figure(figsize=(_WIDTH, 3.6), dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots(len(entries), sharex=True)
    longest = max(each["step_end_s"] - each["step_start_s"] for each in entries)
    unit, factor = ("s", 1) if longest >= 1 else ("ms", 1000)
    priorities = [event["priority"] for entry in entries for event in entry["events"]]
    norm = normalization(priorities)
    for entry, axis in zip(entries, axes, strict=True):
        bars = _draw_step(axis, entry, factor, unit, norm)
        axis.set_xlim(0, longest * factor * 1.19)
    axes[-1].set_xlabel(f"time since the start of the step ({unit})")
    bar = figure.colorbar(bars, ax=axes, pad=0.015, aspect=30)
    bar.set_label("priority (0: first layer)")
    bar.locator = matplotlib.ticker.MaxNLocator(integer=True)
    bar.ax.invert_yaxis()
    return _write(figure, folder, "timeline.png")


def write_all(results, folder):
    """Draws all plots.

    Args:
        results: dict, see the module.
        folder: str or path.

    Returns:
        A list of the paths of the plots that the results have the data for.
    """
    paths = [draw(results, folder) for draw in (step_time, throughput, hosts, timeline)]
    return [path for path in paths if path is not None]


def _ratio(result):
    # The ratio of a measured computation is never quite the one that was asked for.
    return float(f"{result['r']:.2g}")


def _bandwidth(result):
    return result["bandwidth"] / 1e9


def _host_count(result):
    return result["hosts"]


def _select(results, experiment):
    """Returns the results of one experiment, and those of the ratios that belong to it.

    The experiments with other bandwidths and hosts leave out the cluster of the ratios: its results
    with the same computation are theirs too. Results without a ratio, such as those of a real
    network, and those with a straggler are in no plot.
    """
    drawn = [
        each
        for each in results.get("results", [])
        if each["r"] is not None and each.get("straggler", 1) == 1
    ]
    chosen = [each for each in drawn if each.get("experiment", experiment) == experiment]
    computations = {(each["model"], round(each["compute_s"], 2)) for each in chosen}
    shared = [
        each
        for each in drawn
        if each.get("experiment", experiment) == "ratio"
        and experiment != "ratio"
        and (each["model"], round(each["compute_s"], 2)) in computations
    ]
    return chosen + shared


def _panels(results, fixed, position, minimum):
    """Returns a panel for each model, of results that differ in what is drawn along the x axis.

    Args:
        results: list of dicts.
        fixed: names of the values of which one is the same in all results of a panel.
        position: Returns the place of a result on the x axis.
        minimum: int, how many places a panel needs.
    """
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for result in results:
        if result["system"] in _STYLES:
            for name in fixed:
                value = _ratio(result) if name == "r" else result[name]
                groups[result["model"]][name, value].append(result)
    panels = []
    for model in sorted(groups, key=_model_order):

        def usefulness(group):
            (name, value), members = group
            return len({position(each) for each in members}), -fixed.index(name), value

        (name, value), members = max(groups[model].items(), key=usefulness)
        if len({position(each) for each in members}) >= minimum:
            title = f"{_MODELS.get(model, model)}, {_describe(name, value)}"
            panels.append(_Panel(title, members))
    return panels


def _write_panels(panels, draw, labels, folder, name):
    """Writes a figure of panels side by side; returns its path, or None without panels.

    Args:
        panels: list of `_Panel`.
        draw: Called with the axis and the results of each panel.
        labels: What the x and the y axes show.
        folder: str or path.
        name: str, of the file.
    """
    if not panels:
        return None
    figure, axes = _figure(panels)
    for panel, axis in zip(panels, axes, strict=True):
        draw(axis, panel.results)
    figure.supxlabel(labels[0])
    figure.supylabel(labels[1])
    _legend(figure, panels)
    return _write(figure, folder, name)


def _model_order(model):
    return list(_MODELS).index(model) if model in _MODELS else len(_MODELS), model


def _describe(name, value):
    if name == "hosts":
        return f"{value} host" if value == 1 else f"{value} hosts"
    return f"r = {value:g}" if name == "r" else f"{value / 1e9:.3g} Gbit/s"


def _medians(values):
    return sorted((x, statistics.median(ys)) for x, ys in values.items())


def _draw_relative_step_time(axis, results, position):
    axis.axhline(1, **_BOUND)
    _draw_systems(
        axis, results, position, lambda result, seconds: seconds / result["lower_bound_s"]
    )
    # With room below, the line of the bound is not taken for the frame.
    bottom, top = axis.get_ylim()
    axis.set_ylim(min(bottom, 1 - 0.06 * (top - 1)), max(top, 1.1))


def _draw_systems(axis, results, position, height):
    """Draws a line for each system; of several results at one place, the last counts.

    The lines are some pixels apart, so that their error bars can be told apart.
    """
    places = [position(each) for each in results]
    step = max(max(places) / min(places), 2) ** 0.009  # The axis is logarithmic.
    systems = [name for name in _STYLES if any(each["system"] == name for each in results)]
    for index, system in enumerate(systems):
        style = _STYLES[system]
        points = {position(each): each for each in results if each["system"] == system}
        shift = step ** (index - (len(systems) - 1) / 2)
        x = sorted(points)
        y = [height(points[each], points[each]["step_s"]) for each in x]
        ends = [
            sorted(
                height(points[each], points[each][name]) for name in ("step_s_min", "step_s_max")
            )
            for each in x
        ]
        errors = [
            [max(0, value - low) for value, (low, _) in zip(y, ends, strict=True)],
            [max(0, high - value) for value, (_, high) in zip(y, ends, strict=True)],
        ]
        axis.errorbar(
            [each * shift for each in x],
            y,
            errors,
            capsize=1.5,
            elinewidth=0.9,
            **_line_arguments(style),
        )
    axis.grid(color="#DDDDDD", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _line_arguments(style):
    return {
        "color": style.color,
        "marker": style.marker,
        "markersize": 5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
        "linestyle": style.line,
        "linewidth": style.width,
    }


def _figure(panels):
    columns = len(panels) if len(panels) <= _COLUMNS else (2 if len(panels) == 4 else _COLUMNS)
    rows = math.ceil(len(panels) / columns)
    panel_height = _PANEL_HEIGHT if columns > 1 else 1.3 * _PANEL_HEIGHT
    size = (_WIDTH, rows * panel_height + 0.9)
    figure = Figure(figsize=size, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, axis in zip(panels, axes, strict=False):
        axis.set_title(panel.title)
    for axis in axes[len(panels) :]:
        axis.remove()
    return figure, axes[: len(panels)]


def _ticks(axis, values):
    axis.xaxis.set_major_locator(matplotlib.ticker.FixedLocator(values))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())


def _round_values(low, high):
    """Returns some of 1, 2, 5, 10, 20 and so on: those from low to high."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{digit}e{exponent}") for exponent in exponents for digit in (1, 2, 5)]
    inside = [value for value in values if low * 0.95 <= value <= high * 1.05]
    return inside if len(inside) > 1 else [low, high]


def _legend(figure, panels):
    drawn = {result["system"] for panel in panels for result in panel.results}
    handles = [
        matplotlib.lines.Line2D([], [], label=system, **_line_arguments(style))
        for system, style in _STYLES.items()
        if system in drawn
    ]
    handles.append(matplotlib.lines.Line2D([], [], label="lower bound", **_BOUND))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=min(4, len(handles)),
        frameon=False,
        handlelength=3,
    )


def _entries_to_compare(entries):
    """Returns the entry of stock Horovod and that of hvd_p3, or an empty list."""
    for model in sorted({each["model"] for each in entries}, key=_model_order):
        stock, ours = [], []
        for entry in entries:
            if entry["model"] == model and entry["events"]:
                (ours if entry["system"].startswith("hvd_p3") else stock).append(entry)
        if stock and ours:
            ours.sort(key=lambda each: each["system"] != "hvd_p3-overlapped")
            return [stock[0], ours[0]]
    return []


def _draw_step(axis, entry, factor, unit, norm):
    start, end = entry["step_start_s"], entry["step_end_s"]
    boxes = []
    for bottom, lane in zip((1.08, 0), _LANES, strict=True):
        intervals = [(*times, event["priority"]) for event, times in _times_of(entry, lane)]
        for first, last, low, high, priority in shares(intervals):
            left, right = ((each - start) * factor for each in (first, last))
            boxes.append((left, right, bottom + 0.92 * low, bottom + 0.92 * high, priority))
    bars = axis.add_collection(collection(boxes, norm))
    total = (end - start) * factor
    axis.axvline(total, color="black", linewidth=1.2)
    idle = total - factor * length(times for _, times in _times_of(entry, "computation"))
    axis.annotate(
        f"step {total:.3g} {unit}",
        (total, 1.85),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        weight="bold",
    )
    axis.annotate(
        f"computation\nidle for {idle:.3g} {unit}",
        (total, 1.38),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )
    axis.set_title(f"{_MODELS.get(entry['model'], entry['model'])}, {entry['system']}", loc="left")
    axis.set_yticks([1.54, 0.46], _LANES)
    axis.set_ylim(-0.06, 2.06)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right"]].set_visible(False)
    return bars


def _times_of(entry, lane):
    """Yields each event of a lane with its (start, end)."""
    for event in entry["events"]:
        if event["lane"] == lane:
            yield event, (event["start_s"], event["end_s"])


def _write(figure, folder, name):
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=_DOTS_PER_INCH, facecolor="white")
    return path


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="the file with the results")
    parser.add_argument("--folder", type=Path, default=Path("."), help="for the PNGs (default .)")
    arguments = parser.parse_args()
    for path in write_all(json.loads(arguments.results.read_text()), arguments.folder):
        print(path)


if __name__ == "__main__":
    main()
