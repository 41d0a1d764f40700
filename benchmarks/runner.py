"""Runs experiments: makes the clusters, launches the systems, collects the results."""

import dataclasses
import json
import statistics
import sys
from pathlib import Path

from benchmarks import bandwidth as link
from benchmarks import experiments, systems
from benchmarks.cluster.emulated import EmulatedCluster
from benchmarks.cluster.launch import SILENCE_S, LaunchError, launch
from benchmarks.rank_program import MARK
from hvd_p3_tools.planner import bounds
from hvd_p3_tools.planner import model_tables as models

_ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Repetitions:
    """How often a step is repeated.

    Args:
        warmup: int. Steps before the measured ones.
        steps: int. Measured steps.
        steps_per_execution: int. Keras's option of this name, for replayed and real models; warmup
            and steps are multiples of it.
    """

    warmup: int = 2
    steps: int = 8
    steps_per_execution: int = 1

    def for_system(self, system):
        """Returns these with warm-up steps enough for what the system does first."""
        if not system.is_autotuned:
            return self
        search = systems.AUTOTUNE_STEPS * self.steps_per_execution
        return dataclasses.replace(self, warmup=max(self.warmup, search))

    @classmethod
    def of(cls, arguments):
        """Returns what a command line asks for, as `arguments.parse` returns it."""
        return cls(arguments.warmup, arguments.steps, arguments.steps_per_execution)


def run(planned, repetitions, progress):
    """Runs experiments one after the other.

    Args:
        planned: List of `experiments.Experiment`.
        repetitions: `Repetitions`.
        progress: Called with a str before each launch, and after each result with the dict of it,
            as in the `results` of bench-results.json.

    Returns:
        List of str: which launches failed, and why.

    Raises:
        ClusterError: If a cluster cannot be made.
    """
    failures = []
    for experiment in planned:
        with EmulatedCluster(experiment.hosts, experiment.bandwidth) as cluster:
            measured = link.measure(cluster)
            for system in experiment.systems:
                progress(
                    f"{experiment.name}: {system.name} on {experiment.hosts} hosts, "
                    f"{experiment.bandwidth / 1e9:g} Gbit/s"
                )
                measurements = measurements_of(experiment, measured, repetitions.for_system(system))
                reported = launch_system(
                    cluster, system, measurements, _recording(experiment, system)
                )
                try:
                    for result in reported:
                        progress(_result(experiment, system, measured, result))
                except LaunchError as error:
                    # The others are worth measuring all the same.
                    failures.append(f"{experiment.name}, {system.name}: {error}")
    return failures


def launch_system(cluster, system, measurements, environment=None):
    """Yields what rank 0 reports of one launch, a dict for each measurement."""
    description = {
        "system": dataclasses.asdict(system),
        "addresses": [host.address for host in cluster.hosts],
        "measurements": measurements,
    }
    variables = {
        "PYTHONPATH": str(_ROOT),
        "CUDA_VISIBLE_DEVICES": "-1",  # the network and the engine are measured, on the host
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **system.environment,
        **(environment or {}),
    }
    command = [sys.executable, "-m", "benchmarks.rank_program", json.dumps(description)]
    with launch(cluster, command, variables, silence_of(measurements)) as lines:
        for line in lines:
            if line.startswith(MARK):
                yield json.loads(line[len(MARK) :])


def silence_of(measurements):
    """Returns how many seconds a launch may be silent: it says something after each ratio.

    Args:
        measurements: List of dicts, as `measurements_of` makes them; others are taken to be short.
    """
    longest_s = [
        experiments.most_s(
            each["warmup"] + each["steps"], max(each["compute_s"]) * each["straggler"]
        )
        for each in measurements
        if "compute_s" in each
    ]
    return SILENCE_S + max(longest_s, default=0.0)


def _recording(experiment, system):
    """The environment variables with which a system records what it does."""
    if experiment.name != "timeline":
        return {}
    if system.family == "hvd_p3":
        return {"HVD_P3_TRACE": "1"}
    return {"HOROVOD_TIMELINE": str(_ROOT / "build" / "horovod-timeline.json")}


def measurements_of(experiment, link_bytes_per_s, repetitions):
    """Returns the measurements of one launch, as `rank_program.py` takes them.

    Args:
        experiment: `experiments.Experiment`.
        link_bytes_per_s: float. Measured bandwidth of the experiment's links.
        repetitions: `Repetitions`.
    """
    # With a reference bandwidth, models are scaled as if the links had that one.
    scale_to = experiment.reference_bandwidth or experiment.bandwidth
    reference = link_bytes_per_s * scale_to / experiment.bandwidth
    measurements = []
    for model in experiment.models:
        measurement = {
            "model": model,
            "straggler": experiment.straggler,
            "timeline": experiment.name == "timeline",
            "warmup": repetitions.warmup,
            "steps": repetitions.steps,
            "steps_per_execution": repetitions.steps_per_execution,
            "compute_s": [experiments.COMMUNICATION_S / ratio for ratio in experiment.ratios],
        }
        if model in models.names():
            measurement["scale"] = experiments.scale_of(model, experiment.hosts, reference)
        elif model == "digits":
            measurement["compute_s"] = [0.0]  # what it takes
        measurements.append(measurement)
    return measurements


def _result(experiment, system, link_bytes_per_s, reported):
    compute_s = reported["compute_s"] * experiment.straggler
    communication_s = bounds.communication_s(reported["bytes"], experiment.hosts, link_bytes_per_s)
    # Ranks that train each for itself wait for nothing.
    awaited_s = 0.0 if system.family == "keras" else communication_s
    result = {
        "experiment": experiment.name,
        "model": reported["model"],
        "r": round(communication_s / reported["compute_s"], 3) if reported["compute_s"] else None,
        "hosts": experiment.hosts,
        "bandwidth": experiment.bandwidth,
        "measured_bandwidth": 8 * link_bytes_per_s,
        "system": system.name,
        "environment": system.environment,
        "step_s": statistics.median(reported["step_s"]),
        "step_s_min": min(reported["step_s"]),
        "step_s_max": max(reported["step_s"]),
        "compute_s": compute_s,
        "communication_s": communication_s,
        "lower_bound_s": bounds.step_s(compute_s, awaited_s),
        "cpu_s": reported["cpu_s"],
        "bytes": reported["bytes"],
        "straggler": experiment.straggler,
    }
    for optional in ("settings", "timeline"):
        if optional in reported:
            result[optional] = reported[optional]
    if reported["model"] in models.names():
        result["scheduled_bound_s"] = _scheduled_bound(reported["model"], compute_s, awaited_s)
    return result


def _scheduled_bound(model, compute_s, communication_s):
    table = models.load(model)
    size = sum(layer.bytes for layer in table.layers)
    times = models.step_times(table, compute_s)
    return bounds.scheduled_step_s(
        [
            (communication_s * layer.bytes / size, forward_s, backward_s)
            for layer, (forward_s, backward_s) in zip(table.layers, times, strict=True)
        ]
    )
