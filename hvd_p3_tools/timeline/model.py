"""What a timeline holds. All times are nanoseconds of one clock for all ranks: the steady clock of
rank 0, from the start of the recording on. None: it did not happen while it was recorded.
"""

import dataclasses


@dataclasses.dataclass
class Slice:
    """One slice in flight.

    Args:
        number: int. The same on all ranks.
        tensors: list of str, the names of its tensors: more than one if they are fused.
        priority: int. 0 is the most urgent.
        offset: int, the first element in the tensor.
        bytes: int.
        start, end: int, when the collective started and finished on this rank.
        unfinished: bool. Whether it was in flight when the recording ended, at `end`.
    """

    number: int
    tensors: list
    priority: int
    offset: int
    bytes: int
    start: int
    end: int
    unfinished: bool = False


@dataclasses.dataclass
class Reduction:
    """One all-reduce of one tensor on one rank, by the times of its phases.

    Args:
        tensor: str, name.
        priority: int. 0 is the most urgent.
        bytes: int.
        ready: int, the gradient exists on this rank.
        negotiated: int, all ranks know that it exists on all.
        queued: int, the last of its slices entered the priority queue. A slice of several tensors
            does so when all of these are negotiated.
        started: int, the first of its slices was sent.
        finished: int, the last of its slices was reduced.
        applied: int, the update of the variable, or in immediate mode the step, took the result.
        wait_began: int, the forward pass came to the tensor before it was reduced.
        slices: list of int, numbers of its slices.
    """

    tensor: str
    priority: int
    bytes: int
    ready: int
    negotiated: int | None = None
    queued: int | None = None
    started: int | None = None
    finished: int | None = None
    applied: int | None = None
    wait_began: int | None = None
    slices: list = dataclasses.field(default_factory=list)


PHASES = ("ready", "negotiated", "queued", "started", "finished", "applied")


@dataclasses.dataclass
class Wait:
    """A time in which the forward pass waited for at least one tensor.

    Args:
        tensor: str, the tensor that it waited for at the end.
        tensors: int, the number of tensors that it waited for.
        start, end: int.
    """

    tensor: str
    tensors: int
    start: int
    end: int


@dataclasses.dataclass
class Rank:
    """What one rank recorded, from 'start' to 'end': of a record that was full, to its last event.

    Args:
        number: int.
        host: str, name.
        start, end: int.
        reductions: list of `Reduction`, by `ready`.
        slices: list of `Slice`, by `start`.
        waits: list of `Wait`, by `start`; no two overlap.
        bytes_in_flight: list of (time, bytes): changes, by time.
        rounds: list of int, ends of negotiation rounds, if they were recorded.
        dropped: int, events that were not recorded since the record was full.
        clock_error: int, by how much its times may be off those of rank 0, in nanoseconds.
    """

    number: int
    host: str = ""
    start: int = 0
    end: int = 0
    reductions: list = dataclasses.field(default_factory=list)
    slices: list = dataclasses.field(default_factory=list)
    waits: list = dataclasses.field(default_factory=list)
    bytes_in_flight: list = dataclasses.field(default_factory=list)
    rounds: list = dataclasses.field(default_factory=list)
    dropped: int = 0
    clock_error: int = 0


@dataclasses.dataclass
class Timeline:
    """All that a file holds.

    Args:
        ranks: list of `Rank`, by number.
        settings: dict of the settings that matter, such as `credit_bytes`, by name.
        version: str, of the hvd_p3 that recorded.
        start_since_epoch: float, when the recording started, in seconds.
    """

    ranks: list
    settings: dict = dataclasses.field(default_factory=dict)
    version: str = ""
    start_since_epoch: float = 0.0


def union(intervals):
    """Returns intervals merged where they overlap or touch.

    Args:
        intervals: iterable of (start, end).

    Returns:
        A list of (start, end), by start.
    """
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def length(intervals):
    """Returns the time that intervals cover, each moment counted once."""
    return sum(end - start for start, end in union(intervals))


def cut(intervals, start, end):
    """Returns the parts of intervals that lie between two times."""
    clipped = ((max(first, start), min(last, end)) for first, last in intervals)
    return [(first, last) for first, last in clipped if first < last]
