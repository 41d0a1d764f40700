"""A small timeline with known answers, for tests. Times are milliseconds.

Two ranks reduce `last` (priority 1, two slices) and `first` (priority 0, one slice that it shares
with `bias`). Rank 1 has `first` later. The forward pass of both waits for `first`.

    rank 0:  ready last 0, first 10, bias 10; rank 1: last 0, first 30, bias 10
    negotiated: last 2, bias 12, first 32; queued: last 2, first and bias 32
    slice 0 (last) 4 to 14, slice 1 (last) 4 to 24, slice 2 (first, bias) 36 to 46 on rank 0,
    36 to 47 on rank 1
    wait for first from 20 to 46 on rank 0, from 31 to 47 on rank 1
    applied: last 50, first and bias 48; recorded 0 to 100
"""

from hvd_p3_tools.timeline.model import Rank, Timeline
from hvd_p3_tools.timeline.records import RankBuilder

LAST, FIRST, BIAS = 0, 1, 2
_TENSORS = {LAST: ("last/kernel", 1), FIRST: ("first/kernel", 0), BIAS: ("first/bias", 0)}


def ms(value):
    return round(value * 1e6)


def build_rank(number, events, end=100, dropped=0):
    """A `Rank` from (kind, time in ms, tensor, slice, offset, bytes, bytes in flight)."""
    rank = Rank(number, f"host{number}", 0, ms(end), dropped=dropped, clock_error=1000 * number)
    builder = RankBuilder(rank, _TENSORS)
    for kind, time, *others in events:
        builder.add(kind, ms(time), *others)
    builder.end()
    return rank


def events_of_rank(number):
    late = 30 if number == 1 else 10
    finish = 46 + number
    wait = 20 if number == 0 else 31
    events = [
        ("submitted", 0, LAST, -1, 0, 2000, 0),
        ("negotiated", 2, LAST, -1, 0, 2000, 0),
        ("queued", 2, LAST, -1, 0, 1000, 0),
        ("queued", 2, LAST, -1, 250, 1000, 0),
        ("started", 4, LAST, 0, 0, 1000, 1000),
        ("started", 4, LAST, 1, 250, 1000, 2000),
        ("submitted", 10, BIAS, -1, 0, 100, 2000),
        ("negotiated", 12, BIAS, -1, 0, 100, 2000),
        ("finished", 14, LAST, 0, 0, 1000, 1000),
        ("finished", 24, LAST, 1, 250, 1000, 0),
        ("completed", 24, LAST, -1, 0, 2000, 0),
        ("submitted", late, FIRST, -1, 0, 400, 0),
        ("wait began", wait, FIRST, -1, 0, 0, 0),
        ("negotiated", 32, FIRST, -1, 0, 400, 0),
        ("queued", 32, FIRST, -1, 0, 500, 0),
        ("started", 36, FIRST, 2, 0, 500, 500),
        ("member", 36, BIAS, 2, 0, 100, 500),
        ("finished", finish, FIRST, 2, 0, 500, 0),
        ("completed", finish, FIRST, -1, 0, 400, 0),
        ("wait ended", finish, FIRST, -1, 0, 0, 0),
        ("completed", finish, BIAS, -1, 0, 100, 0),
        ("applied", 48, FIRST, -1, 0, 0, 0),
        ("applied", 48, BIAS, -1, 0, 0, 0),
        ("applied", 50, LAST, -1, 0, 0, 0),
    ]
    return sorted(events, key=lambda event: event[1])


def timeline():
    """The timeline above, as a `Timeline`."""
    ranks = [build_rank(number, events_of_rank(number)) for number in (0, 1)]
    return Timeline(ranks, {"slice_bytes": 1000, "credit_bytes": 2000}, "1.2.3", 1e9)
