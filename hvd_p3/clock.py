"""One clock for all ranks: by how much a rank's steady clock is ahead of that of rank 0.

Hosts have steady clocks that start at their boot and do not run equally fast. Rank 0 asks another
rank for its time. The answer was read between the question and its arrival, so half of that time
bounds the error; the quickest of several answers counts. Measured at the start and at the end of a
recording, the offset in between is interpolated (as NTP does it: Mills, 1991).
"""

import dataclasses
import struct
import time

ROUND_TRIPS = 32

_QUESTION = b"?"
_ENOUGH = b"."
_TIME = struct.Struct("<q")


@dataclasses.dataclass(frozen=True)
class Offset:
    """What rank 0 knows of another rank's clock at one point of time.

    Args:
        time: int, nanoseconds of rank 0's clock.
        offset: int, by how many nanoseconds the other clock is ahead.
        error: int, by how many nanoseconds `offset` may be wrong.
    """

    time: int
    offset: int
    error: int


def measure(channel, rank, tag, timeout_s, now=time.monotonic_ns):
    """Measures the offset of a rank that calls `answer`; called by rank 0.

    Args:
        channel: `hvd_p3._engine.MpiMessages`, or what has its `send` and `receive`.
        rank: int, of the other rank.
        tag: int, of the messages.
        timeout_s: float. The longest time to wait for an answer.
        now: Function that reads the clock, in nanoseconds.

    Returns:
        An `Offset`.

    Raises:
        RuntimeError: If the other rank does not answer.
    """
    best = None
    for _ in range(ROUND_TRIPS):
        before = now()
        channel.send(rank, _QUESTION, tag, timeout_s)
        (theirs,) = _TIME.unpack(channel.receive(rank, tag, timeout_s))
        after = now()
        middle = (before + after) // 2
        found = Offset(middle, theirs - middle, (after - before + 1) // 2)
        if best is None or found.error < best.error:
            best = found
    channel.send(rank, _ENOUGH, tag, timeout_s)
    return best


def answer(channel, tag, timeout_s, now=time.monotonic_ns):
    """Answers rank 0's questions until it has enough; called by another rank.

    Args: as for `measure`.

    Raises:
        RuntimeError: If rank 0 asks nothing.
    """
    while channel.receive(0, tag, timeout_s) == _QUESTION:
        channel.send(0, _TIME.pack(now()), tag, timeout_s)


SAME = Offset(0, 0, 0)  # of rank 0 to itself


def to_rank_0(times, start, end):
    """Returns a rank's times on the clock of rank 0.

    Args:
        times: Array of int64, nanoseconds of the rank's clock.
        start, end: `Offset` at two times.
    """
    if end.time <= start.time:
        return times - start.offset
    drift = end.offset - start.offset
    # The rank's clock showed this at the first measurement. Differences from it fit into floats.
    first = start.time + start.offset
    elapsed = times - first
    share = elapsed / (end.time - start.time + drift)
    return times - start.offset - (drift * share).round().astype("int64")
