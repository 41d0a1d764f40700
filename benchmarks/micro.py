"""The engine without TensorFlow: its processor time for a slice, and its steps on the cluster."""

import itertools
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import rich.progress
import rich.table

from benchmarks import bandwidth, experiments, native, report
from benchmarks.cluster.emulated import EmulatedCluster
from benchmarks.cluster.launch import SILENCE_S, LaunchError, launch
from hvd_p3_tools.planner import bounds, model_tables

_KIB = 1024
_MODELS = ("vgg19", "resnet50", "inception_v3", "sockeye")
# One gradient of 4096 slices, on ranks that are threads of one process.
_IN_PROCESS = {"ranks": 2, "slice_bytes": _KIB, "slices": 4096}
_IN_PROCESS_STEP_LIMIT_S = 5.0  # a step takes some tens of milliseconds


def measure(arguments, console):
    """Measures, prints tables and writes micro-results.json.

    Args:
        arguments: As `arguments.parse` returns them: hosts, bandwidth, models, ratios, slice_kib,
            credit_kib, warmup, steps, output.
        console: `rich.console.Console`.

    Raises:
        ClusterError, LaunchError: If the cluster cannot be made or the engine fails.
    """
    in_process = measure_in_process(arguments.warmup, arguments.steps)
    console.print(
        f"in one process, {_IN_PROCESS['ranks']} ranks, slices of 1 KiB: "
        f"{in_process['cpu_us_per_slice']:.1f} us of processor time for a slice on each rank",
        highlight=False,
    )
    names = arguments.models or _MODELS
    settings = list(itertools.product(arguments.slice_kib, arguments.credit_kib))
    work = list(itertools.product(names, arguments.ratios or (1.0,), settings))
    # What the links allow: no computation behind which anything could be hidden.
    work.append((names[0], None, settings[0]))
    results = []
    with EmulatedCluster(arguments.hosts, arguments.bandwidth * experiments.GIGABIT) as cluster:
        link = bandwidth.measure(cluster)
        for name, ratio, (slice_kib, credit_kib) in rich.progress.track(
            work, "measuring", console=console
        ):
            engine = {"slice_bytes": slice_kib * _KIB, "credit_bytes": credit_kib * _KIB}
            results.append(_on_cluster(cluster, link, name, ratio, engine, arguments))
    console.print(table_of(results))
    path = arguments.output / "micro-results.json"
    document = {"in_process": in_process, "results": results}
    path.write_text(json.dumps(document, indent=1) + "\n")
    console.print(f"written: {path}")


def measure_in_process(warmup, steps):
    """Measures what a slice costs where nothing is sent.

    Args:
        warmup: int, steps before the measured ones.
        steps: int.

    Returns:
        dict of the settings, `slices` and `cpu_us_per_slice`: microseconds of user and system time
        of the process, for each rank.
    """
    elements = _IN_PROCESS["slice_bytes"] * _IN_PROCESS["slices"] // 4
    options = ["--in-process", str(_IN_PROCESS["ranks"])]
    options += ["--slice-bytes", str(_IN_PROCESS["slice_bytes"])]
    with tempfile.TemporaryDirectory() as folder:
        command = _command(folder, [(0.0, 0.0, [elements])], warmup, steps, options)
        limit_s = (warmup + steps) * _IN_PROCESS_STEP_LIMIT_S
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"`{' '.join(command)}` took more than {limit_s:g} s") from error
    if ended.returncode != 0:
        raise LaunchError(f"`{' '.join(command)}` failed:\n{ended.stderr[-4000:]}")
    measured = json.loads(ended.stdout)
    cpu_us = 1e6 * measured["cpu_s"] / measured["slices"]
    return {**_IN_PROCESS, "slices": measured["slices"], "cpu_us_per_slice": cpu_us}


def layers_of(name, scale, compute_s):
    """Returns what `engine_benchmark` replays of a model.

    Args:
        name: str, of a model table.
        scale: float, by which its variables are divided.
        compute_s: float, seconds of both passes.

    Returns:
        List of `(forward_s, backward_s, elements of each gradient)`.
    """
    table = model_tables.scaled(model_tables.load(name), scale)
    return [
        (forward_s, backward_s, [variable.elements for variable in layer.variables])
        for layer, (forward_s, backward_s) in zip(
            table.layers, model_tables.step_times(table, compute_s), strict=True
        )
    ]


def _command(folder, layers, warmup, steps, options):
    path = Path(folder, "layers")
    path.write_text(
        "".join(
            f"{forward_s:.9f} {backward_s:.9f} {' '.join(map(str, elements))}\n"
            for forward_s, backward_s, elements in layers
        )
    )
    counts = ["--warmup", str(warmup), "--steps", str(steps)]
    return [str(native.ENGINE_BENCHMARK), "--layers", str(path), *counts, *options]


def _on_cluster(cluster, link, name, ratio, engine, arguments):
    hosts = len(cluster.hosts)
    scale = experiments.scale_of(name, hosts, link)
    compute_s = 0.0 if ratio is None else experiments.COMMUNICATION_S / ratio
    layers = layers_of(name, scale, compute_s)
    size = 4 * sum(sum(elements) for _, _, elements in layers)
    options = ["--slice-bytes", str(engine["slice_bytes"])]
    options += ["--credit-bytes", str(engine["credit_bytes"])]
    # The engine says something when it has measured all steps.
    silence_s = SILENCE_S + experiments.most_s(arguments.warmup + arguments.steps, compute_s)
    with tempfile.TemporaryDirectory() as folder:
        command = _command(folder, layers, arguments.warmup, arguments.steps, options)
        with launch(cluster, command, silence_s=silence_s) as lines:
            reported = [line for line in lines if line.startswith("{")]
    measured = json.loads(reported[-1])
    bound_s = bounds.step_s(compute_s, bounds.communication_s(size, hosts, link))
    return {
        "model": name,
        "r": ratio,
        "hosts": hosts,
        "bandwidth": cluster.bandwidth,
        "measured_bandwidth": 8 * link,
        **engine,
        "step_s": statistics.median(measured["step_s"]),
        "step_s_min": min(measured["step_s"]),
        "step_s_max": max(measured["step_s"]),
        "lower_bound_s": bound_s,
        "cpu_s": measured["cpu_s"],
        "slices": measured["slices"],
        "rounds": measured["rounds"],
    }


def table_of(results):
    """Returns a `rich.table.Table` of the results on a cluster."""
    table = rich.table.Table()
    for column in ("model", "r", "hosts", "slices KiB", "credit KiB", *report.STEP_COLUMNS):
        table.add_column(column, justify="left" if column == "model" else "right")
    for each in results:
        table.add_row(
            each["model"],
            "no computation" if each["r"] is None else f"{each['r']:g}",
            str(each["hosts"]),
            f"{each['slice_bytes'] / _KIB:g}",
            f"{each['credit_bytes'] / _KIB:g}",
            *report.step_cells(each),
        )
    return table
