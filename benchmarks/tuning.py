"""The search for stock Horovod's best settings: every fusion threshold with every cycle time."""

import itertools
import statistics

import rich.table

from benchmarks import bandwidth, experiments, runner, systems
from benchmarks.cluster.emulated import EmulatedCluster

FUSION_THRESHOLDS_KIB = (0, 128, 2 * 1024, 16 * 1024, 128 * 1024)
CYCLE_TIMES_MS = (1.0, 5.0)


def search(arguments, console):
    """Measures all combinations at r = 1 and prints them, the fastest first.

    Args:
        arguments: As parsed by `__main__`: hosts, bandwidth, steps, warmup, models.
        console: `rich.console.Console`.
    """
    names = arguments.models or ["vgg19", "resnet50"]
    experiment = experiments.Experiment(
        "tune", tuple(names), (1.0,), (), arguments.hosts, arguments.bandwidth * experiments.GIGABIT
    )
    repetitions = runner.Repetitions(arguments.warmup, arguments.steps)
    rows = []
    with EmulatedCluster(experiment.hosts, experiment.bandwidth) as cluster:
        measurements = runner.measurements_of(experiment, bandwidth.measure(cluster), repetitions)
        for threshold, cycle in itertools.product(FUSION_THRESHOLDS_KIB, CYCLE_TIMES_MS):
            system = systems.tuned_horovod(threshold * 1024, cycle)
            times = {
                result["model"]: statistics.median(result["step_s"])
                for result in runner.launch_system(cluster, system, measurements)
            }
            rows.append((threshold, cycle, times))
            console.print(f"{threshold} KiB, {cycle:g} ms: {times}")
    table = rich.table.Table("fusion threshold KiB", "cycle time ms", *names)
    for threshold, cycle, times in sorted(rows, key=lambda row: sum(row[2].values())):
        table.add_row(str(threshold), f"{cycle:g}", *(f"{times[name]:.3f}" for name in names))
    console.print(table)
