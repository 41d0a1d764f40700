"""The results of the comparison: a table, a JSON file and a plot."""

import dataclasses
import json
import statistics


@dataclasses.dataclass
class Summary:
    """What one way of training has brought with several seeds.

    Args:
        name: str.
        examples_per_s, normalized_entropy: float, means over the seeds.
        normalized_entropy_deviation: Optional float, the standard deviation between seeds; here and
            below `None` with one seed. Seeds differ in their ground truth and so in what can be
            learned; the deviations of the ratios have no part of that.
        to_p3: Optional float. The mean over the seeds of the share by which normalised entropy is
            above that of synchronous training with the same seed. `None` without that method.
        to_p3_deviation: Optional float, the standard deviation of that share between seeds.
        to_foreground, to_foreground_deviation: Optional float, the same to the foreground version
            of a method in the background.
        synchronizations_per_min, average_sync_gap: Optional float, means over the seeds.
    """

    name: str
    examples_per_s: float
    normalized_entropy: float
    normalized_entropy_deviation: float | None
    to_p3: float | None
    to_p3_deviation: float | None
    to_foreground: float | None
    to_foreground_deviation: float | None
    synchronizations_per_min: float | None
    average_sync_gap: float | None


def summarize(results):
    """Returns a list of one `Summary` for each way of training.

    Args:
        results: List of `methods.Result`, of all seeds.
    """
    by_name = {}
    for result in results:
        by_name.setdefault(result.name, {})[result.seed] = result

    def shares(name, other):
        pairs = [
            (own.normalized_entropy, by_name[other][seed].normalized_entropy)
            for seed, own in by_name[name].items()
            if name != other and seed in by_name.get(other, {})
        ]
        return [own / theirs - 1 for own, theirs in pairs]

    summaries = []
    for name, by_seed in by_name.items():
        runs = list(by_seed.values())
        entropies = [run.normalized_entropy for run in runs]
        to_p3 = shares(name, "p3")
        to_foreground = shares(name, f"fr-{name[2:]}") if name.startswith("s-") else []
        summaries.append(
            Summary(
                name,
                statistics.mean(run.examples_per_s for run in runs),
                statistics.mean(entropies),
                _deviation(entropies),
                _mean(to_p3),
                _deviation(to_p3),
                _mean(to_foreground),
                _deviation(to_foreground),
                _mean([run.synchronizations_per_min for run in runs]),
                _mean([run.average_sync_gap for run in runs]),
            )
        )
    return summaries


def _mean(values):
    return statistics.mean(values) if values and None not in values else None


def _deviation(values):
    return statistics.stdev(values) if len(values) > 1 else None


def as_table(summaries, best):
    """Returns the results as lines of text.

    Args:
        summaries: What `summarize` has returned.
        best: List of float, for each seed the normalised entropy of the true probabilities.
    """
    lines = [
        f"{'method':10}{'examples/s':>12}{'NE held out':>20}{'to p3':>18}{'to foreground':>18}"
        f"{'syncs/min':>11}{'sync gap':>10}"
    ]
    for each in summaries:
        entropy = _with_deviation(
            each.normalized_entropy, each.normalized_entropy_deviation, ".4f", ".4f"
        )
        to_p3 = _with_deviation(each.to_p3, each.to_p3_deviation, "+.2%", ".2%")
        to_foreground = _with_deviation(
            each.to_foreground, each.to_foreground_deviation, "+.2%", ".2%"
        )
        lines.append(
            f"{each.name:10}{each.examples_per_s:12,.0f}{entropy:>20}{to_p3:>18}{to_foreground:>18}"
            f"{_or_dash(each.synchronizations_per_min, '.0f'):>11}"
            f"{_or_dash(each.average_sync_gap, '.1f'):>10}"
        )
    lines.append(f"{'truth':10}{'':12}{statistics.mean(best):20.4f}")
    if len(best) > 1:
        lines.append(f"Means over {len(best)} seeds, ± the standard deviation between them.")
    return "\n".join(lines)


def _with_deviation(value, deviation, form, deviation_form):
    if value is None:
        return "-"
    if deviation is None:
        return format(value, form)
    return f"{format(value, form)} ± {format(deviation, deviation_form)}"


def _or_dash(value, form):
    return "-" if value is None else format(value, form)


def write_json(path, results, best, ranks, settings):
    """Writes everything to a file.

    Args:
        path: str.
        results: List of `methods.Result`, of all seeds.
        best: As in `as_table`.
        ranks: int.
        settings: dict of the program's arguments.
    """
    content = {
        "ranks": ranks,
        "settings": settings,
        "best_possible_normalized_entropy": best,
        "methods": [dataclasses.asdict(summary) for summary in summarize(results)],
        "runs": [dataclasses.asdict(result) for result in results],
    }
    with open(path, "w") as file:
        json.dump(content, file, indent=1)
        file.write("\n")


def plot(path, summaries, best, ranks):
    """Draws examples per second as bars, and normalised entropy as points.

    Args:
        path: str. Its ending decides the format.
        summaries, best: As in `as_table`.
        ranks: int.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [each.name for each in summaries]
    colors = [_color(name) for name in names]
    figure, (speed, quality) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    speed.bar(names, [each.examples_per_s for each in summaries], color=colors)
    speed.set_ylabel(f"examples per second, {ranks} ranks")
    has_p3 = any(each.to_p3 is not None for each in summaries)
    for each, color in zip(summaries, colors, strict=True):
        if has_p3:  # in percent of that of synchronous training
            value, deviation = 100 * (each.to_p3 or 0.0), 100 * (each.to_p3_deviation or 0.0)
        else:
            value = each.normalized_entropy
            deviation = each.normalized_entropy_deviation or 0.0
        # Points, since the axis does not start at 0: differences of a thousandth matter.
        quality.errorbar(each.name, value, deviation, fmt="o", color=color, capsize=3)
    quality.set_ylabel(
        "normalised entropy to p3, %" if has_p3 else "normalised entropy (lower is better)"
    )
    title = f"true probabilities: {statistics.mean(best):.4f}"
    if has_p3:
        p3 = next(each for each in summaries if each.name == "p3")
        quality.axhline(0.0, color="tab:gray", linewidth=0.8)
        title = f"lower is better; p3: {p3.normalized_entropy:.4f}, {title}"
    quality.set_title(title, fontsize="small")
    for axes in (speed, quality):
        axes.tick_params(axis="x", rotation=45)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _color(name):
    """Background, foreground, and the rest."""
    return {"s": "tab:blue", "fr": "tab:orange"}.get(name.split("-")[0], "tab:gray")
