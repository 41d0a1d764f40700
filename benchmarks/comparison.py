"""The comparison of hvd_p3 with stock Horovod: measures, prints a table, writes JSON and plots."""

import datetime
import importlib.metadata
import json
import platform

import rich.progress
import rich.table

from benchmarks import arguments as command_line
from benchmarks import native, report, runner
from benchmarks.cluster.launch import LaunchError

_RESULTS = "bench-results.json"


def compare(arguments, console):
    """Measures, and writes table, JSON and plots.

    Args:
        arguments: As `arguments.parse` returns them.
        console: `rich.console.Console`.

    Raises:
        ClusterError: If a cluster cannot be made.
        LaunchError: After all others, if a system failed.
    """
    planned = command_line.choose(arguments)
    _keep_previous(arguments.output)
    results = []
    launches = sum(len(each.systems) for each in planned)
    with rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        console=console,
    ) as bar:
        task = bar.add_task("building", total=launches + 1)
        native.build()

        def progress(news):
            if isinstance(news, str):
                bar.update(task, description=news, advance=1)
                if not console.is_terminal:
                    console.print(news)
            else:
                results.append(news)
                ratio = news["step_s"] / news["lower_bound_s"]
                bar.console.print(
                    f"  {news['model']} r={news['r']}: {news['step_s']:.3f} s a step, "
                    f"{ratio:.2f} of the lower bound"
                )
                _write(arguments, results)

        repetitions = runner.Repetitions.of(arguments)
        failures = runner.run(planned, repetitions, progress)
    console.print(table_of(results))
    written = _write(arguments, results)
    from benchmarks import plots  # slow to import, and not needed by other commands

    for path in [written, *plots.write_all(json.loads(written.read_text()), arguments.output)]:
        console.print(f"written: {path}")
    if failures:
        raise LaunchError("not all systems ran:\n" + "\n".join(failures))


def versions():
    """Returns the versions of what is measured, as a dict."""
    packages = ("hvd_p3", "horovod", "tensorflow", "keras", "numpy")
    found = {package: importlib.metadata.version(package) for package in packages}
    return {**found, "python": platform.python_version(), "kernel": platform.release()}


def table_of(results):
    """Returns a `rich.table.Table` of the results."""
    table = rich.table.Table()
    for column in ("model", "r", "hosts", "Gbit/s", "system", *report.STEP_COLUMNS):
        table.add_column(column, justify="left" if column in ("model", "system") else "right")
    for each in results:
        table.add_row(
            each["model"] + (" (straggler)" if each["straggler"] != 1 else ""),
            "" if each["r"] is None else f"{each['r']:.2f}",
            str(each["hosts"]),
            f"{each['bandwidth'] / 1e9:g}",
            each["system"],
            *report.step_cells(each),
        )
    return table


def _keep_previous(folder):
    """Puts the results of an earlier run aside; its pictures give way to those of this run."""
    path = folder / _RESULTS
    if path.exists():
        path.replace(folder / f"previous-{_RESULTS}")


def _write(arguments, results):
    path = arguments.output / _RESULTS
    settings = {**vars(arguments), "output": str(arguments.output)}
    settings["date"] = datetime.date.today().isoformat()
    document = {
        "settings": settings,
        "versions": versions(),
        "results": [
            {key: value for key, value in each.items() if key != "timeline"} for each in results
        ],
        "timelines": [each["timeline"] for each in results if "timeline" in each],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
