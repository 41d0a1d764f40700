"""The benchmark `python -m benchmarks shadow`: what synchronisation takes from training.

Ranks train without synchronisation, with each algorithm in the background and with each in the
foreground. The systems take turns in one launch, so that a busy machine disturbs all alike, and are
compared by their medians.
"""

import json
import statistics
import sys
from pathlib import Path

import rich.table

from benchmarks.cluster.emulated import EmulatedCluster
from benchmarks.cluster.launch import SILENCE_S, LaunchError, launch
from benchmarks.shadow_program import MARK

_ROOT = Path(__file__).resolve().parent.parent

BASELINE = "no synchronisation"
BANDWIDTH_GBIT = 0.1

# The all-reduce of these weights takes half a second on four hosts with links of 100 Mbit/s: as
# long as a dozen steps.
_WORKLOAD = {
    "megabytes": 4.0,
    "compute_s": 0.04,
    "batch_size": 200,
    "every": 5,
    # Of BMUF. Other values would make it model averaging.
    "eta": 0.8,
    "block_momentum": 0.5,
}

_VARIABLES = {
    "PYTHONPATH": str(_ROOT),
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}

# The share of unsynchronised training that background synchronisation must keep.
THRESHOLD = 0.95


def run(arguments, console):
    """Measures, or runs the example; exits with code 1 if the background takes too much.

    Args:
        arguments, console: As in `measure`.
    """
    if arguments.example:
        run_example(arguments, console)
    elif not measure(arguments, console):
        sys.exit(1)


def measure(arguments, console):
    """Measures, and prints and writes the results.

    Args:
        arguments: Of the command line.
        console: `rich.console.Console`.

    Returns:
        Whether each system in the background keeps the share `arguments.threshold`.

    Raises:
        ClusterError, LaunchError: If the cluster cannot be made or a rank fails.
    """
    description = {**_WORKLOAD, "seconds": arguments.seconds, "turns": arguments.turns}
    command = [sys.executable, "-m", "benchmarks.shadow_program", json.dumps(description)]
    turns = []
    with (
        EmulatedCluster(arguments.hosts, arguments.bandwidth * 1e9) as cluster,
        launch(cluster, command, _VARIABLES, SILENCE_S + 2 * arguments.seconds) as lines,
    ):
        for line in lines:
            if line.startswith(MARK):
                turns.append(json.loads(line[len(MARK) :]))
                last = turns[-1]
                console.print(f"  {last['system']}: {last['examples_per_s']:.0f} examples/s")
    results = summarize(turns)
    if not results:
        raise LaunchError("no system reported a result")
    console.print(table_of(results))
    path = arguments.output / "shadow-results.json"
    settings = {**description, "hosts": arguments.hosts, "bandwidth": arguments.bandwidth * 1e9}
    path.write_text(json.dumps({"settings": settings, "results": results}, indent=1) + "\n")
    console.print(f"written: {path}")
    slow = too_slow(results, arguments.threshold)
    for each in slow:
        console.print(
            f"{each['system']} keeps {each['ratio']:.3f} of unsynchronised training, less than "
            f"{arguments.threshold:g}"
        )
    return not slow


def run_example(arguments, console):
    """Runs examples/ctr_shadow_sync.py on the emulated hosts instead, and prints what it prints.

    Args:
        arguments, console: As in `measure`.

    Raises:
        ClusterError, LaunchError: As in `measure`.
    """
    path = arguments.output.resolve() / "ctr-results.json"
    command = [sys.executable, str(_ROOT / "examples" / "ctr_shadow_sync.py"), "--json", str(path)]
    with (
        EmulatedCluster(arguments.hosts, arguments.bandwidth * 1e9) as cluster,
        launch(cluster, command, _VARIABLES) as lines,
    ):
        for line in lines:
            console.print(line, markup=False, highlight=False)
    console.print(f"written: {path}")


def summarize(turns):
    """Returns the medians of the turns of each system, as a list of dicts.

    Args:
        turns: List of dict, as `shadow_program.py` prints them.

    Raises:
        LaunchError: If a system has no turn in which the baseline was measured too.
    """
    by_system = {}
    for turn in turns:
        by_system.setdefault(turn["system"], []).append(turn)
    baseline = {turn["turn"]: turn["examples_per_s"] for turn in by_system.get(BASELINE, [])}
    results = []
    for system, own in by_system.items():
        # Each turn against the baseline of the same turn.
        ratios = [
            turn["examples_per_s"] / baseline[turn["turn"]]
            for turn in own
            if turn["turn"] in baseline
        ]
        if not ratios:
            raise LaunchError(f"there is no turn with both {system!r} and {BASELINE!r}")
        result = {
            "system": system,
            "examples_per_s": statistics.median(turn["examples_per_s"] for turn in own),
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
        }
        for measure in ("syncs_per_min", "sync_gap"):
            if measure in own[0]:
                result[measure] = statistics.median(turn[measure] for turn in own)
        results.append(result)
    return results


def too_slow(results, threshold):
    """Returns the results of systems in the background whose ratio is below a threshold."""
    return [
        each for each in results if each["system"].startswith("S-") and each["ratio"] < threshold
    ]


def table_of(results):
    """Returns a `rich.table.Table` of the results."""
    table = rich.table.Table()
    columns = ("system", "examples/s", "of unsynchronised", "min to max", "syncs/min", "sync gap")
    for column in columns:
        table.add_column(column, justify="left" if column == "system" else "right")
    for each in results:
        table.add_row(
            each["system"],
            f"{each['examples_per_s']:.0f}",
            f"{each['ratio']:.3f}",
            f"{each['ratio_min']:.3f} to {each['ratio_max']:.3f}",
            f"{each['syncs_per_min']:.0f}" if "syncs_per_min" in each else "",
            f"{each['sync_gap']:.1f}" if "sync_gap" in each else "",
        )
    return table
