"""Draws throughput against bandwidth, as the P3 paper does, and against the number of ranks."""

import matplotlib
import matplotlib.figure

from hvd_p3_tools.planner import units
from hvd_p3_tools.planner.errors import PlannerError

_LABELS = {
    "fifo": "stock Horovod (FIFO)",
    "immediate": "P3, immediate",
    "p3": "P3, overlapped",
    "server": "P3 with parameter servers",
    "shadow": "ShadowSync",
}
_MARKERS = dict(zip(_LABELS, "osD^v", strict=True))


def draw(results, title, path):
    """Draws a panel for each of bandwidth and ranks of which there are several values.

    Throughput is of one rank, so that curves for many ranks show how it scales. The dashed curve is
    what the lower bound of the step allows.

    Args:
        results: list of `Result`.
        title: str, the model.
        path: `pathlib.Path`, of the picture.

    Raises:
        PlannerError: If there is one value of each.
        OSError: If the picture cannot be written.
    """
    bandwidths = sorted({result.bandwidth for result in results})
    ranks = sorted({result.ranks for result in results})
    panels = []
    if len(bandwidths) > 1:
        panels.append(("bandwidth", [each for each in results if each.ranks == ranks[0]]))
    if len(ranks) > 1:
        panels.append(("ranks", [each for each in results if each.bandwidth == bandwidths[0]]))
    if not panels:
        raise PlannerError(
            "a plot needs several bandwidths or several numbers of ranks, as in "
            "`--bandwidth 1Gbit/s..100Gbit/s`"
        )
    figure = matplotlib.figure.Figure(figsize=(5.6 * len(panels), 4.0), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (name, shown) in zip(axes, panels, strict=True):
        _panel(axis, name, shown)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def _panel(axis, name, results):
    unit = 8e-9 if name == "bandwidth" else 1
    for scheme in dict.fromkeys(result.scheme for result in results):
        own = sorted(
            (getattr(result, name) * unit, result.throughput / result.ranks)
            for result in results
            if result.scheme == scheme
        )
        axis.plot(*zip(*own, strict=True), marker=_MARKERS[scheme], ms=4, label=_LABELS[scheme])
    bound = sorted(
        {
            (
                getattr(result, name) * unit,
                result.throughput / result.ranks * result.step_s / result.lower_bound_s,
            )
            for result in results
            if result.scheme in ("fifo", "immediate", "p3")
        }
    )
    if bound:
        axis.plot(*zip(*bound, strict=True), "k--", lw=1, label="bound of all-reduce")
    axis.set_xscale("log", base=2 if name == "ranks" else 10)
    ticks = sorted({getattr(result, name) * unit for result in results})
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize="small")
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.set_ylabel("examples per second and rank")
    if name == "bandwidth":
        axis.set_xlabel("bandwidth of a link (Gbit/s)")
        axis.set_title(f"{results[0].ranks} ranks", fontsize="medium")
    else:
        axis.set_xlabel("ranks")
        axis.set_title(units.print_bandwidth(results[0].bandwidth), fontsize="medium")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
