"""Simulates training steps under several schemes, networks and numbers of ranks.

The model is a profile or the name of one that is built in. Nothing runs on a network: the numbers
come from an event-driven simulation, slice by slice.
"""

from pathlib import Path

from hvd_p3_tools.command_line import planning
from hvd_p3_tools.command_line.errors import CommandError, needs

_STRAGGLER_FACTOR = 1.3
_SLICED = {"immediate", "p3", "server", "shadow"}
# What an option changes.
_SCHEMES_OF = {
    "servers": {"server"},
    "server_bandwidth": {"server"},
    "slice": _SLICED,
    "credit": _SLICED,
    "no_priorities": _SLICED,
    "fusion": {"fifo"},
    "cycle_time": {"fifo"},
}


def add_arguments(parser):
    planning.add_model_arguments(parser)
    parser.add_argument(
        "--scheme",
        default="fifo,p3,server,shadow",
        metavar="LIST",
        help="of fifo, immediate, p3, server, shadow (default: %(default)s)",
    )
    parser.add_argument(
        "--ranks", default="4", metavar="LIST", help="such as 4, 2,4,8 or 2..4096 (default: 4)"
    )
    parser.add_argument(
        "--bandwidth",
        metavar="LIST",
        help="of a link, such as 10Gbit/s or 1Gbit/s..100Gbit/s (default: what the profile "
        "measured, or 10 Gbit/s)",
    )
    planning.add_network_arguments(parser)
    parser.add_argument("--servers", type=int, metavar="N", help="parameter servers")
    parser.add_argument(
        "--stragglers", type=int, default=0, metavar="N", help="ranks that compute slower"
    )
    parser.add_argument(
        "--straggler-factor",
        type=float,
        metavar="F",
        help="how many times as long stragglers compute (default: 1.3)",
    )
    parser.add_argument("--slice", metavar="SIZE", help="HVD_P3_SLICE_BYTES (default: 120 KiB)")
    parser.add_argument("--credit", metavar="SIZE", help="HVD_P3_CREDIT_BYTES (default: 768 KiB)")
    parser.add_argument(
        "--fusion", metavar="SIZE", help="HOROVOD_FUSION_THRESHOLD (default: 128 MiB)"
    )
    parser.add_argument("--cycle-time", metavar="TIME", help="HOROVOD_CYCLE_TIME (default: 1 ms)")
    parser.add_argument(
        "--no-priorities", action="store_true", help="slices in the order of backpropagation"
    )
    planning.add_json_argument(parser)
    parser.add_argument(
        "--plot", type=Path, metavar="PNG", help="draw throughput by bandwidth and by ranks"
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="write a timeline of three steps for each scheme, for the first number of ranks and "
        "bandwidth, as `hvd-p3 timeline` and Perfetto read them",
    )


def run(arguments):
    planning.import_planner()
    from hvd_p3_tools.planner.errors import PlannerError

    try:
        _run(arguments)
    except PlannerError as error:
        raise CommandError(str(error)) from None


def _run(arguments):
    from hvd_p3_tools.planner import ranges
    from hvd_p3_tools.planner.simulation.cluster import Cluster
    from hvd_p3_tools.planner.simulation.simulator import SCHEMES
    from hvd_p3_tools.planner.simulation.sweep import sweep

    profile = planning.profile_of(arguments)
    schemes = list(dict.fromkeys(each.strip() for each in arguments.scheme.split(",")))
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise CommandError(f"--scheme must be of {', '.join(SCHEMES)}. Received: {scheme}")
    _check_that_all_count(arguments, schemes)
    ranks = ranges.ranks(arguments.ranks)
    given = None
    if arguments.bandwidth is not None:
        given = ranges.bandwidths(arguments.bandwidth)
    bandwidths = given or [planning.default_bandwidth(profile)]
    factor = _STRAGGLER_FACTOR if arguments.straggler_factor is None else arguments.straggler_factor
    cluster = Cluster(
        max(ranks),
        planning.network_of(arguments, profile, given and given[0]),
        arguments.stragglers,
        factor if arguments.stragglers else 1.0,
        arguments.servers,
        planning.server_bandwidth_of(arguments),
    )
    settings = _settings(arguments)
    results = sweep(profile, cluster, schemes, ranks, bandwidths, settings)
    if arguments.json is not None:
        document = {
            "model": profile.name,
            "batch": profile.batch,
            "results": [result.to_dict() for result in results],
        }
        planning.write_json(document, arguments.json)
    if arguments.json != "-":
        _print(profile, results)
    if arguments.plot is not None:
        _draw(profile, results, arguments.plot)
    if arguments.timeline is not None:
        _write_timelines(profile, cluster, schemes, ranks[0], settings, arguments.timeline)


def _check_that_all_count(arguments, schemes):
    """Raises an error for an option that changes nothing for these schemes."""
    for name, counting in _SCHEMES_OF.items():
        if getattr(arguments, name) in (None, False) or not counting.isdisjoint(schemes):
            continue
        raise CommandError(
            f"--{name.replace('_', '-')} counts for {', '.join(sorted(counting))} alone; add one "
            f"of them, or leave it out. Received: --scheme {arguments.scheme}"
        )
    if arguments.straggler_factor is not None and arguments.stragglers == 0:
        raise CommandError("--straggler-factor needs --stragglers, the number of slow ranks")
    if arguments.timeline is not None and not arguments.timeline.name:
        raise CommandError(f"--timeline must be the name of a file. Received: {arguments.timeline}")


def _settings(arguments):
    from hvd_p3_tools.planner import units
    from hvd_p3_tools.planner.simulation.cluster import Settings

    given = {"priorities": not arguments.no_priorities}
    for argument, field in (("slice", "slice_bytes"), ("credit", "credit_bytes")):
        text = getattr(arguments, argument)
        if text is not None:
            given[field] = int(units.size(text, f"--{argument}"))
    if arguments.fusion is not None:
        given["fusion_bytes"] = int(units.size(arguments.fusion, "--fusion"))
    if arguments.cycle_time is not None:
        given["cycle_s"] = units.duration(arguments.cycle_time, "--cycle-time")
    return Settings(**given)


def _print(profile, results):
    from hvd_p3_tools.planner import units

    console, table_type = planning.import_rich()
    table = table_type(
        title=f"{profile.name}, {profile.batch} examples a rank, "
        f"{units.print_size(profile.bytes)} of gradients (simulated)"
    )
    table.add_column("scheme")
    for heading in ("ranks", "bandwidth", "step", "of the bound", "examples/s", "to fifo"):
        table.add_column(heading, justify="right")
    for heading in ("hidden", "link use", "weights averaged every"):
        table.add_column(heading, justify="right")
    fifo = {
        (result.ranks, result.bandwidth): result for result in results if result.scheme == "fifo"
    }
    for result in results:
        stock = fifo.get((result.ranks, result.bandwidth))
        period_s = result.sync_period_s
        table.add_row(
            result.scheme,
            str(result.ranks),
            units.print_bandwidth(result.bandwidth),
            units.print_duration(result.step_s),
            f"{result.step_s / result.lower_bound_s:.2f}",
            f"{result.throughput:.4g}",
            "" if stock is None else f"{result.throughput / stock.throughput:.2f}",
            f"{100 * result.hidden_share:.0f} %" if result.communication_s > 0 else "",
            f"{100 * result.link_use:.0f} %",
            ""
            if period_s is None
            else f"{units.print_duration(period_s)}, {period_s / result.step_s:.1f} steps",
        )
    console.print(table)


def _draw(profile, results, path):
    try:
        from hvd_p3_tools.planner.simulation import plotting
    except ImportError as error:
        raise needs("matplotlib", error) from None
    try:
        plotting.draw(results, f"{profile.name}, batch {profile.batch} (simulated)", path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot draw {path} ({reason}); use --plot") from None


def _write_timelines(profile, cluster, schemes, ranks, settings, path):
    import dataclasses

    from hvd_p3_tools.planner.simulation.simulator import simulate
    from hvd_p3_tools.timeline import chrome_trace

    first = dataclasses.replace(cluster, ranks=ranks)
    for scheme in schemes:
        own = path if len(schemes) == 1 else path.with_suffix(f".{scheme}{path.suffix}")
        timeline = simulate(profile, first, scheme, settings, record=True).timeline
        try:
            with own.open("w", encoding="utf-8") as file:
                chrome_trace.write(timeline, file)
        except OSError as error:
            raise CommandError(f"cannot write {own} ({error.strerror}); use --timeline") from None
