"""Says what a timeline shows, and draws it.

Prints, for each rank and all together: training steps, communication, how much of it was hidden,
and use of the link; then the longest waits of the forward pass, and why.
"""

import math
from pathlib import Path

from hvd_p3_tools.command_line.errors import CommandError, needs
from hvd_p3_tools.timeline import chrome_trace, summary, waits


def add_arguments(parser):
    parser.add_argument("file", type=Path, help="the file that HVD_P3_TIMELINE named")
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="PNG",
        help="where to draw it (default: beside the file, with the ending .png)",
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=float,
        metavar="S",
        help="draw from this second of the recording on (default: two steps in its middle)",
    )
    parser.add_argument("--to", dest="end", type=float, metavar="S", help="draw up to this second")
    parser.add_argument(
        "--waits", type=int, default=10, metavar="N", help="list N waits (default: 10)"
    )


def run(arguments):
    # Only here, so that other subcommands start without them.
    try:
        import rich.console
        import rich.table
    except ImportError as error:
        raise needs("rich", error) from None
    try:
        from hvd_p3_tools.timeline import drawing
    except ImportError as error:
        raise needs("matplotlib", error) from None
    if arguments.waits < 0:
        raise CommandError(f"--waits must be at least 0. Received: {arguments.waits}")
    timeline = _read(arguments.file)
    console = rich.console.Console()
    if not console.is_terminal:
        console.width = 160  # a file or pipe has no width of its own
    for part in chrome_trace.parts_of(arguments.file):
        console.print(f"Part of a rank, which rank 0 could not gather: {part}", soft_wrap=True)
    _print_summary(timeline, console, rich.table.Table)
    _print_waits(timeline, arguments.waits, console, rich.table.Table)
    if not any(rank.slices or rank.waits for rank in timeline.ranks):
        console.print("There is nothing to draw.")
        return
    picture = arguments.picture or arguments.file.with_suffix(".png")
    start, end = _span(timeline, arguments.start, arguments.end)
    try:
        drawing.draw(timeline, start, end, picture)
    except OSError as error:
        raise CommandError(f"cannot write {picture} ({error.strerror}); use --picture") from None
    console.print(f"Drawn: {picture}, {start / 1e9:.3f} s to {end / 1e9:.3f} s", soft_wrap=True)


def _read(path):
    try:
        return chrome_trace.read(path)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except chrome_trace.NotATimeline as error:
        raise CommandError(f"{path} {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CommandError(f"{path} is damaged: {type(error).__name__}: {error}") from None


def _print_summary(timeline, console, table_type):
    summaries = [summary.summarize(rank) for rank in timeline.ranks]
    table = table_type(title="Timeline")
    headings = ("rank", "recorded", "steps", "step", "slices", "MB", "communication", "waited")
    for heading in (*headings, "hidden", "link busy", "MB/s in flight", "clock error"):
        table.add_column(heading, justify="right")
    rows = summaries if len(summaries) == 1 else [*summaries, summary.total(summaries)]
    for each in rows:
        table.add_row(
            "all" if each.rank < 0 else str(each.rank),
            f"{each.recorded_s:.2f} s",
            str(each.steps),
            "" if each.step_s is None else f"{1e3 * each.step_s:.1f} ms",
            str(each.slices),
            f"{each.bytes / 1e6:.1f}",
            f"{each.communication_s:.3f} s",
            f"{each.waited_s:.3f} s",
            f"{100 * each.hidden_share:.0f} %",
            f"{100 * each.busy_share:.0f} %",
            f"{each.bytes_per_s / 1e6:.1f}",
            f"{1e6 * each.clock_error_s:.0f} µs",
        )
    console.print(table)
    for each in summaries:
        if each.dropped:
            console.print(
                f"Rank {each.rank} dropped {each.dropped} events since its record was full: record "
                "a shorter time with hvd_p3.start_timeline and stop_timeline."
            )
    if not any(each.slices for each in summaries):
        console.print("No gradients went through the priority queue.")


def _print_waits(timeline, count, console, table_type):
    worst = waits.Explainer(timeline).worst(count)
    if not worst:
        return
    table = table_type(title="Longest waits of the forward pass")
    for heading in ("at", "rank", "waited"):
        table.add_column(heading, justify="right")
    for heading in ("for", "because"):
        table.add_column(heading, overflow="fold")
    for each in worst:
        whole = each.wait.end - each.wait.start
        # What took less than a tenth explains nothing.
        reasons = [
            f"{reason} ({part / 1e6:.1f} ms)"
            for reason, part in each.parts.items()
            if part >= 0.1 * whole
        ]
        table.add_row(
            f"{each.wait.start / 1e9:.3f} s",
            str(each.rank),
            f"{whole / 1e6:.1f} ms",
            each.wait.tensor,
            "; ".join(reasons),
        )
    console.print(table)


def _span(timeline, start, end):
    """Returns what to draw, in nanoseconds: as asked for, or two steps of the first rank."""
    for name, value in (("--from", start), ("--to", end)):
        if value is not None and not math.isfinite(value):
            raise CommandError(f"{name} must be a number of seconds. Received: {value}")
    first = timeline.ranks[0]
    begin, finish = first.start, first.end
    starts = summary.step_starts(first)
    if start is None and end is None and len(starts) > 3:
        middle = (len(starts) - 2) // 2
        begin, finish = starts[middle], starts[middle + 2]
    if start is not None:
        begin = round(start * 1e9)
    if end is not None:
        finish = round(end * 1e9)
    if begin >= finish:
        raise CommandError(
            f"nothing lies between {begin / 1e9:g} s and {finish / 1e9:g} s: --from must be before "
            f"--to, and the recording lasts {first.end / 1e9:g} s"
        )
    return begin, finish
