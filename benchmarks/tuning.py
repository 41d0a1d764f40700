"""The search for stock Horovod's best settings: every fusion threshold with every cycle time."""

import itertools
import statistics

import rich.table

from benchmarks import bandwidth, experiments, runner, systems
from benchmarks.cluster.emulated import EmulatedCluster
from benchmarks.cluster.launch import LaunchError

FUSION_THRESHOLDS_KIB = (0, 128, 2 * 1024, 16 * 1024, 128 * 1024)
CYCLE_TIMES_MS = (1.0, 5.0)


def search(arguments, console):
    """Measures all combinations at r = 1 and prints them, the fastest of each system first.

    Args:
        arguments: As `arguments.parse` returns them.
        console: `rich.console.Console`.

    Raises:
        ClusterError: If a cluster cannot be made.
        LaunchError: After all others, if some settings failed.
    """
    names = arguments.models or ["vgg19", "resnet50"]
    experiment = experiments.Experiment(
        "tune", tuple(names), (1.0,), (), arguments.hosts, arguments.bandwidth * experiments.GIGABIT
    )
    repetitions = runner.Repetitions.of(arguments)
    failures = []
    table = rich.table.Table("system", "fusion threshold KiB", "cycle time ms", *names)
    with EmulatedCluster(experiment.hosts, experiment.bandwidth) as cluster:
        measurements = runner.measurements_of(experiment, bandwidth.measure(cluster), repetitions)
        for system in experiments.TUNED:
            if arguments.systems and system.name not in arguments.systems:
                continue
            rows = []
            for threshold, cycle in itertools.product(FUSION_THRESHOLDS_KIB, CYCLE_TIMES_MS):
                chosen = systems.with_settings(system, threshold, cycle)
                try:
                    reported = list(runner.launch_system(cluster, chosen, measurements))
                except LaunchError as error:
                    # The others are worth measuring all the same.
                    failures.append(f"{system.name}, {threshold} KiB, {cycle:g} ms: {error}")
                    continue
                times = {each["model"]: statistics.median(each["step_s"]) for each in reported}
                rows.append((threshold, cycle, times))
                console.print(f"{system.name}, {threshold} KiB, {cycle:g} ms: {times}")
            for threshold, cycle, times in sorted(rows, key=lambda row: sum(row[2].values())):
                seconds = (f"{times[name]:.3f}" for name in names)
                table.add_row(system.name, str(threshold), f"{cycle:g}", *seconds)
    console.print(table)
    if failures:
        raise LaunchError("not all settings ran:\n" + "\n".join(failures))
