"""Says what batch, how many GPUs and which network a model needs, and what priorities bring.

The model is a profile or the name of one that is built in. The formulas are those of Distributed
Training Large-Scale Deep Architectures (Zou et al., 2017); step times are simulated.
"""

import math

from hvd_p3_tools.command_line import planning
from hvd_p3_tools.command_line.errors import CommandError, needs


def add_arguments(parser):
    planning.add_model_arguments(parser)
    parser.add_argument(
        "--gpus", default="2..16", metavar="LIST", help="such as 4 or 2..64 (default: %(default)s)"
    )
    parser.add_argument(
        "--bandwidth",
        metavar="BANDWIDTH",
        help="of a link (default: what the profile measured, or 10 Gbit/s)",
    )
    parser.add_argument(
        "--memory", default="16 GiB", metavar="SIZE", help="of a GPU (default: %(default)s)"
    )
    parser.add_argument(
        "--memory-bandwidth",
        metavar="BANDWIDTH",
        help="of a GPU's memory, where times come from FLOPs (default: 500 GB/s)",
    )
    parser.add_argument(
        "--optimizer",
        choices=("sgd", "momentum", "adam"),
        default="momentum",
        help="whose state takes memory, and whose update takes time where times come from FLOPs "
        "(default: %(default)s)",
    )
    parser.add_argument("--speedup", type=float, metavar="S", help="wanted, over one GPU")
    parser.add_argument("--efficiency", type=float, metavar="A", help="wanted, 0 to 1")
    planning.add_network_arguments(parser)
    planning.add_json_argument(parser)


def run(arguments):
    planning.import_planner()
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise needs("scipy", error) from None
    from hvd_p3_tools.planner.errors import PlannerError

    try:
        _run(arguments)
    except PlannerError as error:
        raise CommandError(str(error)) from None


def _run(arguments):
    from hvd_p3_tools.planner import advice, plan, ranges, targets, units
    from hvd_p3_tools.planner.simulation.cluster import Cluster

    if arguments.speedup is not None and not 1 <= arguments.speedup <= targets.MOST_GPUS:
        raise CommandError(
            f"--speedup must be a finite number from 1 to {targets.MOST_GPUS}. "
            f"Received: {arguments.speedup}"
        )
    if arguments.efficiency is not None and not 0 < arguments.efficiency <= 1:
        raise CommandError(
            f"--efficiency must be a finite number above 0 and at most 1. "
            f"Received: {arguments.efficiency}"
        )
    profile = planning.profile_of(arguments, arguments.optimizer)
    bandwidth = None
    if arguments.bandwidth is not None:
        bandwidth = units.bandwidth(arguments.bandwidth, "--bandwidth")
    gpus = ranges.ranks(arguments.gpus, "--gpus")
    cluster = Cluster(
        max(gpus),
        planning.network_of(arguments, profile, bandwidth),
        server_bandwidth=planning.server_bandwidth_of(arguments),
    )
    made = plan.make(
        profile,
        cluster,
        _device(arguments, profile),
        gpus,
        arguments.optimizer,
        arguments.speedup,
        arguments.efficiency,
    )
    recommendations = advice.recommend(made)
    if arguments.json is not None:
        planning.write_json(_document(made, recommendations), arguments.json)
    if arguments.json != "-":
        _print(made, recommendations)


def _device(arguments, profile):
    from hvd_p3_tools.planner import units
    from hvd_p3_tools.planner.device import Device

    given = {"memory_bytes": units.size(arguments.memory, "--memory")}
    if profile.flops_per_s is not None:
        given["flops_per_s"] = profile.flops_per_s
    if arguments.memory_bandwidth is not None:
        given["memory_bytes_per_s"] = units.bandwidth(
            arguments.memory_bandwidth, "--memory-bandwidth"
        )
    return Device(**given)


def _print(made, recommendations):
    from hvd_p3_tools.planner import tuning, units

    console, table_type = planning.import_rich()
    profile = made.profile
    if made.wanted_batch != profile.batch:
        console.print(
            f"A batch of {made.wanted_batch} does not fit "
            f"{units.print_size(made.device.memory_bytes)}: this plan is for {profile.batch}, the "
            "largest that does.",
            highlight=False,
        )
    gemm = ""
    if made.batch.gemm_s != profile.compute_s:
        gemm = f" ({units.print_duration(made.batch.gemm_s)} with GEMM alone)"
    console.print(
        f"{profile.name}: {units.print_size(profile.bytes)} of parameters, batch {profile.batch}, "
        f"{units.print_duration(profile.compute_s)} a step on one GPU{gemm}; "
        f"{units.print_bandwidth(made.cluster.network.bandwidth)} links",
        highlight=False,
    )
    console.print(f"P3 with {tuning.describe(made.settings)}", highlight=False)
    _print_batches(made, console, table_type)
    _print_algorithms(made, console, table_type)
    _print_scalings(made, console, table_type)
    for answer in made.targets:
        console.print(answer.text, highlight=False)
    _print_hiding(made, console, table_type)
    table = table_type(title="What to do")
    table.add_column("gain", justify="right")
    table.add_column("recommendation", overflow="fold")
    for each in recommendations:
        gain = "needed" if each.necessary else f"{100 * (each.gain - 1):.0f} %"
        table.add_row(gain, each.text)
    console.print(table)


def _print_batches(made, console, table_type):
    from hvd_p3_tools.planner import units

    table = table_type(
        title=f"Batch of one GPU with {units.print_size(made.device.memory_bytes)}, "
        f"{made.optimizer}"
    )
    workspace = "workspace" if made.profile.flops_per_s is not None else "least workspace"
    for heading in ("batch", "weights and state", "feature maps", workspace, "step"):
        table.add_column(heading, justify="right")
    table.add_column("examples/s, one GPU", justify="right")
    for option in made.batches:
        table.add_row(
            str(option.batch),
            units.print_size(option.memory.bytes - option.memory.feature_maps),
            units.print_size(option.memory.feature_maps),
            units.print_size(option.algorithms.workspace_bytes),
            units.print_duration(option.step_s),
            f"{option.throughput:.4g}" + (" (best)" if option is made.best_batch else ""),
        )
    console.print(table)


def _print_algorithms(made, console, table_type):
    from hvd_p3_tools.planner import units

    option = made.batch
    if made.profile.flops_per_s is None:
        return  # the library had chosen when the times were measured
    others = {
        name: choice
        for name, choice in option.algorithms.chosen.items()
        if choice.algorithm != "gemm"
    }
    if not others:
        return
    table = table_type(
        title=f"Convolutions that do better than GEMM with a batch of {option.batch}"
    )
    table.add_column("layer")
    table.add_column("algorithm")
    for heading in ("time", "workspace"):
        table.add_column(heading, justify="right")
    for name, choice in others.items():
        table.add_row(
            name,
            choice.algorithm,
            units.print_duration(choice.seconds),
            units.print_size(choice.workspace_bytes),
        )
    console.print(table)


def _print_scalings(made, console, table_type):
    from hvd_p3_tools.planner import units

    table = table_type(title="GPUs")
    table.add_column("scheme")
    headings = ("GPUs", "step (simulated)", "T_O", "R_O", "efficiency α", "speedup αG")
    for heading in (*headings, "simulated examples/s, over one GPU"):
        table.add_column(heading, justify="right")
    for each in made.scalings:
        table.add_row(
            each.scheme,
            str(each.gpus),
            units.print_duration(each.step_s),
            units.print_duration(each.overhead_s),
            f"{each.ratio:.3f}",
            f"{each.efficiency:.3f}",
            f"{each.speedup:.2f}",
            f"{each.throughput_ratio:.2f}",
        )
    console.print(table)


def _print_hiding(made, console, table_type):
    from hvd_p3_tools.planner import units

    table = table_type(title="What hides communication behind computation")
    for heading in ("GPUs", "parameter servers", "bandwidth for all-reduce"):
        table.add_column(heading, justify="right")
    for each in made.hidings:
        table.add_row(
            str(each.gpus), str(each.least_servers), units.print_bandwidth(each.bandwidth)
        )
    console.print(table)


def _document(made, recommendations):
    import dataclasses

    return {
        "model": made.profile.name,
        "batch": made.profile.batch,
        "wanted_batch": made.wanted_batch,
        "parameter_bytes": made.profile.bytes,
        "compute_s": made.profile.compute_s,
        "gemm_compute_s": made.batch.gemm_s,
        "bandwidth": made.cluster.network.bandwidth,
        "memory_bytes": made.device.memory_bytes,
        "optimizer": made.optimizer,
        "batches": [
            {
                "batch": option.batch,
                "step_s": option.step_s,
                "throughput": option.throughput,
                "memory": dataclasses.asdict(option.memory),
                "workspace_bytes": option.algorithms.workspace_bytes,
                "algorithms": {
                    name: choice.algorithm for name, choice in option.algorithms.chosen.items()
                },
            }
            for option in made.batches
        ],
        "best_batch": made.best_batch.batch,
        "scalings": [dataclasses.asdict(each) for each in made.scalings],
        "hiding": [dataclasses.asdict(each) for each in made.hidings],
        "ranks_for_all_reduce": None
        if made.ranks_for_all_reduce == math.inf
        else made.ranks_for_all_reduce,
        "scheme": made.scheme,
        "settings": dataclasses.asdict(made.settings),
        "default_p3_step_s": made.default_p3_s,
        "targets": [dataclasses.asdict(each) for each in made.targets],
        "recommendations": [dataclasses.asdict(each) for each in recommendations],
    }
