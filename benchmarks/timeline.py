"""Makes the entries of `timelines` in the results: what ran when, in one training step.

Pure functions, without TensorFlow and Horovod. An entry is a dict of `system`, `model`,
`step_start_s`, `step_end_s` and `events`; an event is a dict of `lane` ("computation" or
"communication"), `name`, `start_s`, `end_s` and `priority` (0 is the first layer). All times of an
entry are seconds of one clock, whose origin does not matter.
"""

import collections
import json
from pathlib import Path

# Horovod's names for the part of a reduction that is communication. The time around it, in which
# ranks agree and buffers are copied, has other names.
REDUCTIONS = ("MPI_ALLREDUCE", "GLOO_ALLREDUCE", "NCCL_ALLREDUCE", "CCL_ALLREDUCE")


def make_entry(system, model, communication, forward_and_backward, start_s, end_s):
    """Returns an entry of one step from its intervals.

    Args:
        system: str, name of the system.
        model: str, name of the model.
        communication: list of dicts of `name`, `start_s`, `end_s` and `priority`.
        forward_and_backward: list of such dicts, for the computation.
        start_s: float, the start of the step, on the clock of the intervals.
        end_s: float, the end of the step.

    Returns:
        A dict. Intervals that reach beyond the step are cut, those outside are left out.
    """
    if not start_s < end_s:
        raise ValueError(
            f"start_s must be before end_s. Received: start_s={start_s}, end_s={end_s}"
        )
    events = []
    for lane, intervals in (
        ("computation", forward_and_backward),
        ("communication", communication),
    ):
        for interval in intervals:
            first, last = max(interval["start_s"], start_s), min(interval["end_s"], end_s)
            if first < last:
                events.append(
                    {
                        "lane": lane,
                        "name": interval["name"],
                        "start_s": first,
                        "end_s": last,
                        "priority": interval["priority"],
                    }
                )
    return {
        "system": system,
        "model": model,
        "step_start_s": start_s,
        "step_end_s": end_s,
        "events": events,
    }


def from_engine_trace(
    events, forward_and_backward, start_s, end_s, *, system="hvd_p3-overlapped", model=""
):
    """Returns an entry of one step under hvd_p3.

    Args:
        events: list of dicts, from `hvd_p3.take_trace()`.
        forward_and_backward: list of dicts of `name`, `start_s`, `end_s` and `priority`.
        start_s: float, the start of the step. Like all seconds here, of the engine's steady clock,
            which on Linux is that of `time.perf_counter()` and `time.monotonic()`.
        end_s: float, the end of the step.
        system: str, name of the system.
        model: str, name of the model.

    Returns:
        A dict. The communication has an interval for each slice.

    Example:

    ```python
    start = time.perf_counter()
    model.train_on_batch(x, y)
    entry = from_engine_trace(hvd_p3.take_trace(), [], start, time.perf_counter())
    ```
    """
    slices = slices_of_engine_trace(events)
    return make_entry(system, model, slices, forward_and_backward, start_s, end_s)


def slices_of_engine_trace(events):
    """Returns the time that each slice was in flight.

    Args:
        events: list of dicts, from `hvd_p3.take_trace()`.

    Returns:
        A list of dicts of `name` (the tensor), `offset`, `bytes`, `priority`, `start_s` and
        `end_s`, by their start. Of a slice that was in flight when the trace began or ended, the
        interval begins or ends with the trace's first or last event.
    """
    if not events:
        return []
    started = collections.defaultdict(collections.deque)
    slices = []
    for event in events:
        key = event["tensor"], event["offset"]
        if event["kind"] == "started":
            started[key].append(event)
        elif event["kind"] == "finished":
            start = started[key].popleft() if started[key] else events[0]
            slices.append(_slice(event, start["time_ns"], event["time_ns"]))
    for unfinished in started.values():
        for event in unfinished:
            slices.append(_slice(event, event["time_ns"], events[-1]["time_ns"]))
    return sorted(slices, key=lambda each: each["start_s"])


def _slice(event, start_ns, end_ns):
    return {
        "name": event["tensor"],
        "offset": event["offset"],
        "bytes": event["bytes"],
        "priority": event["priority"],
        "start_s": start_ns / 1e9,
        "end_s": end_ns / 1e9,
    }


def from_horovod_timeline(path, priorities=None, activities=REDUCTIONS):
    """Reads the communication from a file that Horovod wrote because of `HOROVOD_TIMELINE`.

    Fused tensors have an interval each, all of the same time.

    Args:
        path: str or path of the file. It may be cut off, as by a rank that was killed.
        priorities: dict of the priority of each tensor by its name, or None. Tensors that are not
            in it are left out. Without it all are kept, with priority 0.
        activities: names of the activities that count as communication.

    Returns:
        A list of dicts of `name` (the tensor), `start_s`, `end_s` and `priority`, by their start,
        in seconds since the timeline's start; see `horovod_timeline_start`.
    """
    tensors = {}
    open_activities = collections.defaultdict(list)
    intervals = []
    for event in _read_horovod_timeline(path):
        process, phase = event.get("pid"), event.get("ph")
        if phase == "M" and event["name"] == "process_name" and "name" in event["args"]:
            tensors[process] = event["args"]["name"]
        elif phase == "B":
            open_activities[process].append(event)
        elif phase == "E" and open_activities[process]:
            # The end has no name: it ends the innermost activity of its tensor.
            start = open_activities[process].pop()
            if start["name"] in activities:
                name = tensors.get(process, str(process))
                if priorities is None or name in priorities:
                    intervals.append(
                        {
                            "name": name,
                            "start_s": start["ts"] / 1e6,
                            "end_s": event["ts"] / 1e6,
                            "priority": 0 if priorities is None else priorities[name],
                        }
                    )
    return sorted(intervals, key=lambda each: each["start_s"])


def horovod_timeline_start(path):
    """Returns when a Horovod timeline started, as `time.time()` of its host, or None if unknown."""
    for event in _read_horovod_timeline(path):
        microseconds = event.get("args", {}).get("start_time_since_epoch_in_micros")
        if microseconds is not None:
            return microseconds / 1e6
    return None


def _read_horovod_timeline(path):
    """Yields the events up to the end of the file or to the first that is not whole."""
    text = Path(path).read_text()
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        try:
            event, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            return
        yield event
        position = text.find("{", position)
