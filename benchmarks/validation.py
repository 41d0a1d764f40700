"""Compares the planner's simulation with real steps on emulated clusters.

The simulation knows of a cluster what a user of the planner can measure on it: the all-reduces of
the system, alone, of several sizes. It knows of the model its sizes and times.
"""

import json
import statistics

import rich.table

from benchmarks import bandwidth, experiments, runner, systems
from benchmarks.cluster.emulated import EmulatedCluster
from benchmarks.cluster.launch import LaunchError
from hvd_p3_tools.planner import model_tables, network, profile
from hvd_p3_tools.planner.simulation.cluster import Cluster, Settings
from hvd_p3_tools.planner.simulation.simulator import simulate

MODELS = ("vgg19", "resnet50")
HOSTS = (2, 4)
BANDWIDTHS = tuple(factor * experiments.GIGABIT for factor in (0.25, 0.5, 1.0))
SCHEMES = ((systems.HOROVOD, "fifo"), (systems.IMMEDIATE, "immediate"), (systems.OVERLAPPED, "p3"))
# First in each launch: measures all-reduces instead of a model.
CALIBRATION = {"model": "all-reduce"}


def validate(arguments, console):
    """Measures, simulates, prints a table and writes validation-results.json.

    Args:
        arguments: As parsed by `__main__`: steps, warmup, models, systems, output.
        console: `rich.console.Console`.

    Raises:
        LaunchError: After all others, if a system failed.
    """
    models = tuple(arguments.models or MODELS)
    wanted = arguments.systems or [system.name for system, _ in SCHEMES]
    schemes = [each for each in SCHEMES if each[0].name in wanted]
    if not schemes:
        raise SystemExit(
            f"benchmarks: --systems must be of {', '.join(each.name for each, _ in SCHEMES)}"
        )
    repetitions = runner.Repetitions.of(arguments)
    results, failures = [], []
    for hosts in HOSTS:
        for bits_per_s in BANDWIDTHS:
            planned = experiments.Experiment(
                "validation", models, (1.0,), (), hosts, bits_per_s, experiments.GIGABIT
            )
            with EmulatedCluster(hosts, bits_per_s) as cluster:
                measurements = runner.measurements_of(
                    planned, bandwidth.measure(cluster), repetitions
                )
                for system, scheme in schemes:
                    console.print(
                        f"{system.name} on {hosts} hosts, {bits_per_s / experiments.GIGABIT:g} "
                        "Gbit/s"
                    )
                    try:
                        found = _compare(cluster, system, scheme, measurements)
                    except LaunchError as error:
                        failures.append(str(error))  # the others are worth comparing all the same
                        continue
                    results += found
                    for each in found:
                        console.print(f"  {each['model']}: {each['error']:+.1%}")
                    path = _write(results, arguments.output)
    if results:
        console.print(table_of(results))
        errors = [abs(each["error"]) for each in results]
        console.print(f"error: median {statistics.median(errors):.1%}, largest {max(errors):.1%}")
        console.print(f"written: {path}")
    if failures:
        raise LaunchError("not all systems ran:\n" + "\n".join(failures))


def _write(results, folder):
    path = folder / "validation-results.json"
    path.write_text(json.dumps({"results": results}, indent=1) + "\n")
    return path


def _compare(cluster, system, scheme, measurements):
    """Returns a dict for each model that a system trained on a cluster."""
    calibrated, *trained = runner.launch_system(cluster, system, [CALIBRATION, *measurements])
    fit = profile.AllReduceFit(**calibrated["fit"])
    hosts = Cluster(len(cluster.hosts), network_of(fit, scheme))
    results = []
    for measurement, reported in zip(measurements, trained, strict=True):
        simulated = simulate(profile_of(measurement, reported["compute_s"]), hosts, scheme)
        step_s = statistics.median(reported["step_s"])
        results.append(
            {
                "model": measurement["model"],
                "hosts": len(cluster.hosts),
                "bandwidth": cluster.bandwidth,
                "system": system.name,
                "fit": calibrated["fit"],
                "step_s": step_s,
                "step_s_min": min(reported["step_s"]),
                "step_s_max": max(reported["step_s"]),
                "cpu_s": reported["cpu_s"],
                "simulated_s": simulated.step_s,
                "error": simulated.step_s / step_s - 1,
            }
        )
    return results


def network_of(fit, scheme):
    """Returns the `network.Network` on which a system measured its all-reduces, one after another.

    Stock Horovod asks its coordinator and gets an answer, and each all-reduce waits for the next
    cycle, since one with nothing to do has begun when the one before ended.

    Args:
        fit: `profile.AllReduceFit`.
        scheme: str, of the simulation.
    """
    if scheme == "fifo":
        return network.from_fit(fit, rounds=2, cycle_s=Settings().cycle_s)
    return network.from_fit(fit)


def profile_of(measurement, compute_s):
    """Returns the `profile.Profile` of the model that a measurement replays.

    Args:
        measurement: dict, as `runner.measurements_of` makes it.
        compute_s: float. Seconds of forward and backward pass together.
    """
    name, scale = measurement["model"], measurement["scale"]
    table = model_tables.scaled(model_tables.load(name), scale)
    times = model_tables.step_times(table, compute_s)
    layers = tuple(
        profile.Layer(
            layer.name,
            forward_s,
            backward_s,
            tuple(profile.Gradient(each.name, each.bytes) for each in layer.variables),
        )
        for layer, (forward_s, backward_s) in zip(table.layers, times, strict=True)
    )
    return profile.Profile(name, table.source, 1, layers)


def table_of(results):
    """Returns a `rich.table.Table` of the results."""
    table = rich.table.Table()
    for column in ("model", "system", "hosts", "Gbit/s", "measured s", "simulated s", "error"):
        table.add_column(column, justify="left" if column in ("model", "system") else "right")
    for each in results:
        table.add_row(
            each["model"],
            each["system"],
            str(each["hosts"]),
            f"{each['bandwidth'] / experiments.GIGABIT:g}",
            f"{each['step_s']:.3f} ({each['step_s_min']:.3f} to {each['step_s_max']:.3f})",
            f"{each['simulated_s']:.3f}",
            f"{each['error']:+.1%}",
        )
    return table
