"""What the subcommands of the planner share: arguments, tables and JSON."""

import json
import sys
from pathlib import Path

from hvd_p3_tools.command_line.errors import CommandError, needs


def add_model_arguments(parser):
    parser.add_argument(
        "model",
        metavar="PROFILE_OR_MODEL",
        help="a file of `hvd-p3 profile`, or alexnet, bert_large, inception_v3, resnet50, sockeye "
        "or vgg19",
    )
    parser.add_argument(
        "--batch", type=int, metavar="N", help="examples of a rank (default: the file's, or 32)"
    )
    parser.add_argument(
        "--throughput",
        metavar="FLOP/S",
        help="what the device sustains: times come from FLOPs then, also those of a file (default: "
        "the file's times; 10 TFLOP/s for models that are built in)",
    )


def add_network_arguments(parser):
    parser.add_argument(
        "--latency", metavar="TIME", help="of a message between two ranks (default: 20 us)"
    )
    parser.add_argument(
        "--background",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the links that other jobs use, 0 to 1 (default: 0)",
    )
    parser.add_argument(
        "--ranks-per-link", type=int, default=1, metavar="N", help="ranks that share a link"
    )
    parser.add_argument(
        "--oversubscription",
        type=float,
        default=1.0,
        metavar="F",
        help="links together over what the switches carry (default: 1)",
    )
    parser.add_argument(
        "--long-message-share",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="of the bandwidth, that messages above 64 KiB reach (default: 1; 0.5 was seen with "
        "Open MPI over TCP)",
    )
    parser.add_argument(
        "--all-reduce",
        choices=("mpi", "tree", "ring"),
        default="mpi",
        help="how ranks reduce: as hvd_p3 has MPI do it, in trees as NCCL does, or in a ring "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--server-bandwidth",
        metavar="BANDWIDTH",
        help="of servers on machines of their own (default: they share the ranks' links)",
    )


def add_json_argument(parser):
    parser.add_argument(
        "--json", metavar="FILE", help="write JSON to a file, or to standard output if it is -"
    )


def import_planner():
    """Raises an error that names the package if pint, which reads units, is missing."""
    try:
        import pint  # noqa: F401
    except ImportError as error:
        raise needs("pint", error) from None


def import_rich():
    """Returns a console, and the type of tables."""
    try:
        import rich.console
        import rich.table
    except ImportError as error:
        raise needs("rich", error) from None
    console = rich.console.Console()
    if not console.is_terminal:
        console.width = 160  # a file or pipe has no width of its own
    return console, rich.table.Table


def profile_of(arguments, optimizer="momentum"):
    """Returns the profile that the arguments name.

    Args:
        arguments: Of the command line. `memory_bandwidth` counts too, if the subcommand has it.
        optimizer: str, whose update is estimated where times come from FLOPs.
    """
    from hvd_p3_tools.planner import builtin, estimate, units
    from hvd_p3_tools.planner.device import Device

    if arguments.batch is not None and arguments.batch < 1:
        raise CommandError(f"--batch must be at least 1. Received: {arguments.batch}")
    given = {}
    if arguments.throughput is not None:
        given["flops_per_s"] = units.throughput(arguments.throughput, "--throughput")
    memory_bandwidth = getattr(arguments, "memory_bandwidth", None)
    if memory_bandwidth is not None:
        given["memory_bytes_per_s"] = units.bandwidth(memory_bandwidth, "--memory-bandwidth")
    if not builtin.is_file(arguments.model):
        batch = 32 if arguments.batch is None else arguments.batch
        return builtin.load(arguments.model, batch, Device(**given), optimizer)
    found = builtin.find(arguments.model, arguments.batch)
    if not given:
        return found
    if found.flops_per_s is not None:
        given = {"flops_per_s": found.flops_per_s, **given}
    if "flops_per_s" not in given:
        raise CommandError(
            "--memory-bandwidth counts where times come from FLOPs, and those of "
            f"{arguments.model} were measured; leave it out, or give --throughput too"
        )
    return estimate.from_flops(found, Device(**given), optimizer)


def network_of(arguments, profile, bandwidth):
    """Returns the network of the arguments. What they leave open is what the profile measured, or
    the default. Warns if that was measured on one host.

    Args:
        arguments: Of the command line.
        profile: `profile.Profile`.
        bandwidth: float, bytes per second, or None.
    """
    from hvd_p3_tools.planner import network, units

    measured = None
    if profile.all_reduce is not None:
        measured = network.from_fit(profile.all_reduce, arguments.all_reduce)
        if profile.all_reduce.hosts == 1 and (bandwidth is None or arguments.latency is None):
            print(f"hvd-p3: warning: {one_host_warning(profile.all_reduce)}", file=sys.stderr)
    if bandwidth is None:
        bandwidth = default_bandwidth(profile)
    if arguments.latency is not None:
        latency_s = units.duration(arguments.latency, "--latency")
    elif measured is not None:
        latency_s = measured.latency_s
    else:
        latency_s = network.Network.latency_s
    return network.Network(
        bandwidth,
        latency_s,
        arguments.background,
        arguments.ranks_per_link,
        arguments.oversubscription,
        arguments.long_message_share,
        all_reduce=arguments.all_reduce,
    )


def one_host_warning(fit):
    """Returns what to know of all-reduces that were measured on one host."""
    return (
        f"the all-reduces of the profile were measured among {fit.ranks} ranks on one host, which "
        "tells nothing of a network; give --bandwidth and --latency, or profile on several hosts"
    )


def default_bandwidth(profile):
    """Returns the bandwidth that the profile measured, or 10 Gbit/s, in bytes per second."""
    from hvd_p3_tools.planner import units

    if profile.all_reduce is not None:
        return profile.all_reduce.bytes_per_s
    return units.bandwidth("10Gbit/s")


def server_bandwidth_of(arguments):
    """Returns the bandwidth of servers of their own, or None."""
    from hvd_p3_tools.planner import units

    if arguments.server_bandwidth is None:
        return None
    return units.bandwidth(arguments.server_bandwidth, "--server-bandwidth")


def write_json(document, destination):
    """Writes JSON to a file or, if `destination` is `-`, to standard output."""
    text = json.dumps(document, indent=1) + "\n"
    if destination == "-":
        sys.stdout.write(text)
        return
    try:
        Path(destination).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {destination} ({error.strerror}); use --json") from None
