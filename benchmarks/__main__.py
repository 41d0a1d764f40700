"""The command `python -m benchmarks`: measures hvd_p3 beside stock Horovod on an emulated cluster.

python -m benchmarks            # the short comparison, about five minutes
python -m benchmarks --full     # everything, about 50 minutes
python -m benchmarks tune       # the search for Horovod's best settings
python -m benchmarks shadow     # ShadowSync beside training without synchronisation, four minutes
python -m benchmarks validate   # the planner's simulation beside real steps, on 2 and 4 hosts and
                                # three bandwidths, 15 minutes
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import platform
import signal
import sys
from pathlib import Path

import rich.console
import rich.progress
import rich.table

from benchmarks import experiments, native, runner, shadow, tuning, validation
from benchmarks.cluster.emulated import ClusterError, check_requirements
from benchmarks.cluster.launch import LaunchError


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "command",
        nargs="?",
        choices=["compare", "tune", "shadow", "validate"],
        default="compare",
    )
    parser.add_argument("--full", action="store_true", help="all experiments")
    parser.add_argument("--hosts", type=int, default=4, help="emulated hosts (default: 4)")
    parser.add_argument(
        "--bandwidth",
        type=float,
        metavar="GBIT",
        help=f"of each link, in Gbit/s (default: 1; {shadow.BANDWIDTH_GBIT:g} for shadow)",
    )
    parser.add_argument(
        "--turns", type=int, default=3, help="of each system, for shadow (default: 3)"
    )
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="of a turn, for shadow (default: 8)"
    )
    parser.add_argument("--warmup", type=int, default=2, help="steps before the measured ones")
    parser.add_argument("--steps", type=int, default=5, help="measured steps (default: 5)")
    parser.add_argument("--models", nargs="+", help="only these models")
    parser.add_argument("--ratios", nargs="+", type=float, help="only these ratios r")
    parser.add_argument("--systems", nargs="+", help="only these systems")
    parser.add_argument("--experiments", nargs="+", help="only these experiments of --full")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="folder")
    parsed = parser.parse_args(arguments)
    if parsed.bandwidth is None:
        parsed.bandwidth = shadow.BANDWIDTH_GBIT if parsed.command == "shadow" else 1.0
    if parsed.turns < 1 or parsed.seconds <= 0:
        parser.error("--turns must be at least 1 and --seconds above 0")
    if parsed.hosts < 2:
        parser.error(f"--hosts must be at least 2, received {parsed.hosts}")
    if parsed.bandwidth <= 0 or parsed.steps < 2 or parsed.warmup < 1:
        parser.error("--bandwidth must be above 0, --steps at least 2 and --warmup at least 1")
    return parsed


def choose(arguments):
    """Returns the experiments that the arguments ask for."""
    bandwidth = arguments.bandwidth * experiments.GIGABIT
    plan = experiments.full if arguments.full else experiments.short
    planned = plan(arguments.hosts, bandwidth)
    if arguments.experiments:
        planned = [each for each in planned if each.name in arguments.experiments]
    chosen = []
    for each in planned:
        selected = dataclasses.replace(
            each,
            models=_only(each.models, arguments.models),
            ratios=_only(each.ratios, arguments.ratios),
            systems=tuple(
                system
                for system in each.systems
                if not arguments.systems or system.name in arguments.systems
            ),
        )
        if selected.models and selected.ratios and selected.systems:
            chosen.append(selected)
    if not chosen:
        raise SystemExit("benchmarks: nothing is left to measure; see --help for the choices")
    return chosen


def _only(values, wanted):
    return tuple(value for value in values if not wanted or value in wanted)


def versions():
    """Returns the versions of what is measured, as a dict."""
    packages = ("hvd_p3", "horovod", "tensorflow", "keras", "numpy")
    found = {package: importlib.metadata.version(package) for package in packages}
    return {**found, "python": platform.python_version(), "kernel": platform.release()}


def table_of(results):
    """Returns a `rich.table.Table` of the results."""
    table = rich.table.Table()
    columns = ("model", "r", "hosts", "Gbit/s", "system", "step s", "min to max", "bound s")
    for column in (*columns, "step / bound", "CPU s"):
        table.add_column(column, justify="left" if column in ("model", "system") else "right")
    for each in results:
        table.add_row(
            each["model"] + (" (straggler)" if each["straggler"] != 1 else ""),
            "" if each["r"] is None else f"{each['r']:.2f}",
            str(each["hosts"]),
            f"{each['bandwidth'] / 1e9:g}",
            each["system"],
            f"{each['step_s']:.3f}",
            f"{each['step_s_min']:.3f} to {each['step_s_max']:.3f}",
            f"{each['lower_bound_s']:.3f}",
            f"{each['step_s'] / each['lower_bound_s']:.3f}",
            f"{each['cpu_s']:.3f}",
        )
    return table


def compare(arguments, console):
    """Measures, and writes table, JSON and plots."""
    planned = choose(arguments)
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

        repetitions = runner.Repetitions(arguments.warmup, arguments.steps)
        failures = runner.run(planned, repetitions, progress)
    console.print(table_of(results))
    written = _write(arguments, results)
    from benchmarks import plots  # slow to import, and not needed by other commands

    for path in [written, *plots.write_all(json.loads(written.read_text()), arguments.output)]:
        console.print(f"written: {path}")
    if failures:
        raise LaunchError("not all systems ran:\n" + "\n".join(failures))


def _write(arguments, results):
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "bench-results.json"
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


def main(arguments=None):
    # Ended like Ctrl-C, so that the cluster is removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parsed = parse_arguments(arguments)
    console = rich.console.Console()
    if not console.is_terminal:
        console.width = 140  # a log file has no width of its own
    try:
        check_requirements()
        if parsed.command == "tune":
            native.build()
            tuning.search(parsed, console)
        elif parsed.command == "shadow":
            shadow.measure(parsed, console)
        elif parsed.command == "validate":
            native.build()
            validation.validate(parsed, console)
        else:
            compare(parsed, console)
    except (ClusterError, LaunchError, native.BuildError) as error:
        sys.exit(f"benchmarks: {error}")
    except KeyboardInterrupt:
        sys.exit("benchmarks: interrupted; the emulated cluster is removed")


if __name__ == "__main__":
    main()
