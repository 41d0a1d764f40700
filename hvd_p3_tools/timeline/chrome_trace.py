"""Timelines as files of Chrome trace events in JSON, which Perfetto shows.

Each rank is a process. Its threads are the waits of the forward pass, and lanes of slices in
flight: a slice is in the lowest lane that is free, so no two slices of a lane overlap. Each tensor
has a track of its own, with a span for each reduction and its phases in it. `bytes in flight` is a
counter. Times are microseconds. What a reader needs beyond that is in the `args` of events and in
`otherData`.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
describes the format.
"""

import heapq
import itertools
import json
import re
from pathlib import Path

from hvd_p3_tools.timeline.model import PHASES, Rank, Reduction, Slice, Timeline, Wait

FORMAT = 1  # in `otherData`; another number is another meaning of what is written

_WAITS = "forward pass waits"
_LANE = "slices in flight"
_BYTES = "bytes in flight"
_TENSOR = "tensor"  # category of the tensors' tracks
_ROUND = "negotiation round"
# What goes on from each phase of a reduction to the next.
_BETWEEN = ("negotiation", "fusion", "queue", "in flight", "reduced")
_WAITS_THREAD, _ROUNDS_THREAD, _FIRST_LANE_THREAD = 1, 2, 10


class NotATimeline(ValueError):
    """A file is not a timeline of hvd_p3. The message says what it is instead."""


def write(timeline, file):
    """Writes a timeline.

    Args:
        timeline: `Timeline`.
        file: Text file, open for writing.
    """
    other = {
        "hvd_p3_timeline": FORMAT,
        "hvd_p3": timeline.version,
        "clock": "steady clock of rank 0, in microseconds since the start of the recording",
        "start_since_epoch_s": timeline.start_since_epoch,
        "settings": timeline.settings,
        "ranks": [
            {
                "rank": rank.number,
                "host": rank.host,
                "start_us": _to_us(rank.start),
                "end_us": _to_us(rank.end),
                "clock_error_us": _to_us(rank.clock_error),
                "dropped_events": rank.dropped,
            }
            for rank in timeline.ranks
        ],
    }
    file.write(f'{{"otherData": {json.dumps(other)},\n"displayTimeUnit": "ms",\n"traceEvents": [')
    separator = "\n"
    for event in itertools.chain.from_iterable(map(_events_of_rank, timeline.ranks)):
        file.write(separator + json.dumps(event, separators=(",", ":")))
        separator = ",\n"
    file.write("\n]}\n")


def read(path):
    """Reads a timeline.

    Args:
        path: str or path.

    Returns:
        A `Timeline`. If the ranks have written their parts by themselves, that of all parts.

    Raises:
        NotATimeline: If the file holds something else.
        OSError: If it cannot be read.
    """
    parts = parts_of(path)
    return _joined([_read_one(part) for part in parts]) if parts else _read_one(path)


def parts_of(path):
    """Returns the files that ranks have written instead of a timeline's, by rank.

    Args:
        path: str or path of the timeline.

    Returns:
        list of paths; none if the file is not empty.
    """
    path = Path(path)
    if path.exists() and path.stat().st_size > 0:
        return []
    name = re.compile(re.escape(path.name) + r"\.rank(\d+)")
    found = [(name.fullmatch(each.name), each) for each in path.parent.glob(f"{path.name}.rank*")]
    return [each for _, each in sorted((int(match[1]), each) for match, each in found if match)]


def _joined(timelines):
    """Joins the parts of the last recording; older ones may have been left."""
    last = max(each.start_since_epoch for each in timelines)
    of_last = [each for each in timelines if each.start_since_epoch == last]
    ranks = [rank for each in of_last for rank in each.ranks]
    ranks.sort(key=lambda rank: rank.number)
    return Timeline(ranks, of_last[0].settings, of_last[0].version, last)


def _read_one(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if not text.strip():
        raise NotATimeline(
            "is empty: the program has not ended yet, or was killed before its end. Ranks that end "
            f"far apart write parts of their own, each on its host; copy {Path(path).name}.rank0, "
            ".rank1 and so on to the folder of this file"
        )
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotATimeline(f"is not JSON, or only a part of it ({error})") from None
    if isinstance(document, list):
        raise NotATimeline("holds no timeline of hvd_p3; it may be one of Horovod's own")
    if not isinstance(document, dict) or "hvd_p3_timeline" not in document.get("otherData", {}):
        raise NotATimeline("holds no timeline of hvd_p3: HVD_P3_TIMELINE writes one")
    other = document["otherData"]
    if other["hvd_p3_timeline"] != FORMAT:
        raise NotATimeline(
            f"was written by hvd_p3 {other['hvd_p3']} in another format; read it with that version"
        )
    ranks = {}
    for entry in other["ranks"]:
        times = [_from_us(entry[name]) for name in ("start_us", "end_us", "clock_error_us")]
        ranks[entry["rank"]] = Rank(
            entry["rank"],
            entry["host"],
            times[0],
            times[1],
            clock_error=times[2],
            dropped=entry["dropped_events"],
        )
    for event in document["traceEvents"]:
        _read_event(event, ranks[event["pid"]])
    for rank in ranks.values():
        rank.slices.sort(key=lambda each: each.start)
        rank.reductions.sort(key=lambda each: each.ready)
    timeline = Timeline(sorted(ranks.values(), key=lambda rank: rank.number))
    timeline.settings = other["settings"]
    timeline.version = other["hvd_p3"]
    timeline.start_since_epoch = other["start_since_epoch_s"]
    return timeline


def lanes(slices):
    """Gives each slice the lowest lane in which no other slice is at its time.

    Args:
        slices: list of `Slice`, by start.

    Returns:
        A list of int, from 0, in the order of the slices.
    """
    free, busy, chosen = [], [], []
    for each in slices:
        while busy and busy[0][0] <= each.start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (each.end, lane))
        chosen.append(lane)
    return chosen


def _to_us(nanoseconds):
    return round(nanoseconds / 1000, 3)


def _from_us(microseconds):
    return round(microseconds * 1000)


def _events_of_rank(rank):
    lane_of_slice = lanes(rank.slices)
    host = f" on {rank.host}" if rank.host else ""
    yield _name(rank, "process_name", f"rank {rank.number}{host}", 0)
    yield {**_name(rank, "process_sort_index", "", 0), "args": {"sort_index": rank.number}}
    yield _name(rank, "thread_name", _WAITS, _WAITS_THREAD)
    if rank.rounds:
        yield _name(rank, "thread_name", "negotiation rounds", _ROUNDS_THREAD)
    for lane in sorted(set(lane_of_slice)):
        yield _name(rank, "thread_name", f"{_LANE} {lane + 1}", _FIRST_LANE_THREAD + lane)
    for wait in rank.waits:
        yield {
            **_complete(rank, f"wait for {wait.tensor}", _WAITS, wait, _WAITS_THREAD),
            "args": {"tensor": wait.tensor, "tensors": wait.tensors},
        }
    for each, lane in zip(rank.slices, lane_of_slice, strict=True):
        others = f" and {len(each.tensors) - 1} more" if len(each.tensors) > 1 else ""
        arguments = {
            "slice": each.number,
            "tensors": each.tensors,
            "priority": each.priority,
            "offset": each.offset,
            "bytes": each.bytes,
        }
        if each.unfinished:
            arguments["unfinished"] = True
        name = f"{each.tensors[0]}{others}"
        yield {
            **_complete(rank, name, _LANE, each, _FIRST_LANE_THREAD + lane),
            "args": arguments,
        }
    for time in rank.rounds:
        event = _event(rank, "i", _ROUND, _ROUND, time)
        yield {**event, "tid": _ROUNDS_THREAD, "s": "t"}
    for time, size in rank.bytes_in_flight:
        yield {**_event(rank, "C", _BYTES, _BYTES, time), "args": {"bytes": size}}
    yield from _events_of_tensors(rank)


def _events_of_tensors(rank):
    tracks = {}
    for reduction in rank.reductions:
        # A number for each tensor of each rank: Perfetto joins spans of the same one to a track.
        track = tracks.setdefault(reduction.tensor, (rank.number << 24) + len(tracks))
        times = [getattr(reduction, phase) for phase in PHASES]
        known = [time for time in (*times, reduction.wait_began) if time is not None]
        arguments = {"priority": reduction.priority, "bytes": reduction.bytes}
        for phase in (*PHASES, "wait_began"):
            if getattr(reduction, phase) is not None:
                arguments[f"{phase}_us"] = _to_us(getattr(reduction, phase))
        arguments["slices"] = reduction.slices
        # Until it is applied, and if it was not, to the last that is known of it.
        end = reduction.applied if reduction.applied is not None else max(known)

        def event(phase, name, time, track=track):
            return {**_event(rank, phase, name, _TENSOR, time), "id": f"0x{track:x}", "tid": 0}

        yield {**event("b", reduction.tensor, reduction.ready), "args": arguments}
        for name, (first, last) in zip(_BETWEEN, itertools.pairwise(times), strict=True):
            if first is not None and last is not None and first < last:
                yield event("b", name, first)
                yield event("e", name, last)
        if reduction.wait_began is not None and reduction.wait_began >= reduction.ready:
            yield event("n", "the forward pass waits for it", reduction.wait_began)
        yield event("e", reduction.tensor, end)


def _event(rank, phase, name, category, time):
    return {"ph": phase, "pid": rank.number, "name": name, "cat": category, "ts": _to_us(time)}


def _complete(rank, name, category, interval, thread):
    duration = _to_us(interval.end - interval.start)
    return {**_event(rank, "X", name, category, interval.start), "tid": thread, "dur": duration}


def _name(rank, what, name, thread):
    return {"ph": "M", "pid": rank.number, "tid": thread, "name": what, "args": {"name": name}}


def _read_event(event, rank):
    """Adds what an event says to its rank. Phases within a tensor's span are in its arguments."""
    phase, category = event["ph"], event.get("cat")
    arguments = event.get("args", {})
    start = _from_us(event.get("ts", 0))
    end = _from_us(event.get("ts", 0) + event.get("dur", 0))
    if phase == "X" and category == _WAITS:
        rank.waits.append(Wait(arguments["tensor"], arguments["tensors"], start, end))
    elif phase == "X" and category == _LANE:
        rank.slices.append(
            Slice(
                arguments["slice"],
                arguments["tensors"],
                arguments["priority"],
                arguments["offset"],
                arguments["bytes"],
                start,
                end,
                arguments.get("unfinished", False),
            )
        )
    elif phase == "C":
        rank.bytes_in_flight.append((start, arguments["bytes"]))
    elif phase == "i":
        rank.rounds.append(start)
    elif phase == "b" and "ready_us" in arguments:
        reduction = Reduction(
            event["name"], arguments["priority"], arguments["bytes"], start, slices=[]
        )
        for name in (*PHASES, "wait_began"):
            if f"{name}_us" in arguments:
                setattr(reduction, name, _from_us(arguments[f"{name}_us"]))
        reduction.slices = arguments["slices"]
        rank.reductions.append(reduction)
