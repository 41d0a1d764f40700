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
        default="10 TFLOP/s",
        metavar="FLOP/S",
        help="what the device sustains, for models without a profile (default: %(default)s)",
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
    parser.add_argument("--servers", type=int, metavar="N", help="parameter servers")
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


def profile_of(arguments):
    """Returns the profile that the arguments name."""
    from hvd_p3_tools.planner import builtin, units
    from hvd_p3_tools.planner.device import Device

    if arguments.batch is not None and arguments.batch < 1:
        raise CommandError(f"--batch must be at least 1. Received: {arguments.batch}")
    device = Device(flops_per_s=units.throughput(arguments.throughput, "--throughput"))
    return builtin.find(arguments.model, arguments.batch, device)


def network_of(arguments, profile, bandwidth):
    """Returns the network of the arguments. What they leave open is what the profile measured, or
    the default.

    Args:
        arguments: Of the command line.
        profile: `profile.Profile`.
        bandwidth: float, bytes per second, or None.
    """
    from hvd_p3_tools.planner import network, units

    measured = None if profile.all_reduce is None else network.from_fit(profile.all_reduce)
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
