"""The results of the comparison: a table, a JSON file and a plot."""

import dataclasses
import json


def as_table(results, best):
    """Returns the results as lines of text.

    Args:
        results: List of `methods.Result`.
        best: float, the normalised entropy of the true probabilities.
    """
    lines = [
        f"{'method':10}{'examples/s':>12}{'NE held out':>13}{'syncs/min':>11}{'sync gap':>10}",
    ]
    for result in results:
        lines.append(
            f"{result.name:10}{result.examples_per_s:12,.0f}{result.normalized_entropy:13.4f}"
            f"{_or_dash(result.synchronizations_per_min, '11.0f')}"
            f"{_or_dash(result.average_sync_gap, '10.1f')}"
        )
    lines.append(f"{'truth':10}{'':12}{best:13.4f}")
    return "\n".join(lines)


def write_json(path, results, best, ranks, settings):
    """Writes everything to a file.

    Args:
        path: str.
        results, best: As in `as_table`.
        ranks: int.
        settings: dict of the program's arguments.
    """
    content = {
        "ranks": ranks,
        "settings": settings,
        "best_possible_normalized_entropy": best,
        "methods": [dataclasses.asdict(result) for result in results],
    }
    with open(path, "w") as file:
        json.dump(content, file, indent=1)
        file.write("\n")


def plot(path, results, best, ranks):
    """Draws examples per second as bars, and normalised entropy as points.

    Args:
        path: str. Its ending decides the format.
        results, best, ranks: As in `write_json`.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [result.name for result in results]
    colors = [_color(name) for name in names]
    figure, (speed, quality) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    speed.bar(names, [result.examples_per_s for result in results], color=colors)
    speed.set_ylabel(f"examples per second, {ranks} ranks")
    values = [result.normalized_entropy for result in results]
    # Points, since the axis does not start at 0: differences of a thousandth matter.
    quality.scatter(names, values, color=colors)
    quality.set_ylabel("normalised entropy (lower is better)")
    quality.set_title(f"true probabilities: {best:.4f}", fontsize="medium")
    for axes in (speed, quality):
        axes.tick_params(axis="x", rotation=45)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _color(name):
    """Background, foreground, and the rest."""
    return {"s": "tab:blue", "fr": "tab:orange"}.get(name.split("-")[0], "tab:gray")


def _or_dash(value, form):
    return format("-", f">{form.split('.')[0]}") if value is None else format(value, form)
