"""The search for stock Horovod's best settings: every fusion threshold with every cycle time."""

import itertools
import statistics

import rich.table

from benchmarks import bandwidth, experiments, runner, systems
from benchmarks.cluster.emulated import EmulatedCluster

FUSION_THRESHOLDS_KIB = (0, 128, 2 * 1024, 16 * 1024, 128 * 1024)
CYCLE_TIMES_MS = (1.0, 5.0)


def search(arguments, console):
    """Measures all combinations at r = 1 and prints them, the fastest of each system first.

    Args:
        arguments: As `arguments.parse` returns them.
        console: `rich.console.Console`.
    """
    names = arguments.models or ["vgg19", "resnet50"]
    experiment = experiments.Experiment(
        "tune", tuple(names), (1.0,), (), arguments.hosts, arguments.bandwidth * experiments.GIGABIT
    )
    repetitions = runner.Repetitions.of(arguments)
    table = rich.table.Table("system", "fusion threshold KiB", "cycle time ms", *names)
    with EmulatedCluster(experiment.hosts, experiment.bandwidth) as cluster:
        measurements = runner.measurements_of(experiment, bandwidth.measure(cluster), repetitions)
        for system in experiments.TUNED:
            if arguments.systems and system.name not in arguments.systems:
                continue
            rows = []
            for threshold, cycle in itertools.product(FUSION_THRESHOLDS_KIB, CYCLE_TIMES_MS):
                times = {
                    result["model"]: statistics.median(result["step_s"])
                    for result in runner.launch_system(
                        cluster, systems.with_settings(system, threshold, cycle), measurements
                    )
                }
                rows.append((threshold, cycle, times))
                console.print(f"{system.name}, {threshold} KiB, {cycle:g} ms: {times}")
            for threshold, cycle, times in sorted(rows, key=lambda row: sum(row[2].values())):
                seconds = (f"{times[name]:.3f}" for name in names)
                table.add_row(system.name, str(threshold), f"{cycle:g}", *seconds)
    console.print(table)
