"""Makes a `model.Rank` from what an engine recorded."""

import collections

from hvd_p3_tools.timeline.model import Reduction, Slice, Wait


def labels(tensors):
    """Returns how tensors are called in a timeline.

    Args:
        tensors: iterable of (group, name), of all ranks.

    Returns:
        dict of (group, name) to str: the name, with the group where several have that name.
    """
    groups = collections.defaultdict(set)
    for group, name in tensors:
        groups[name].add(group)
    return {
        (group, name): name if len(members) == 1 else f"{name} ({group})"
        for name, members in groups.items()
        for group in members
    }


class RankBuilder:
    """Follows the events of one rank.

    Args:
        rank: `Rank` to fill, with number, start, end and `dropped`.
        tensors: dict of tensor handle to (label, priority).
    """

    def __init__(self, rank, tensors):
        self._rank = rank
        self._tensors = tensors
        self._current = {}  # handle -> the reduction that was submitted last
        self._queued = {}  # (handle, offset) -> when the slice that starts next was queued
        self._in_flight = {}  # number -> (slice, handles)
        self._last_finish = {}  # handle -> when a slice of it finished last
        self._waiting = {}  # handle -> when the wait began
        self._waited = set()  # handles, since the wait began
        self._wait_start = None
        self._last = rank.start  # time of the last event

    def add(self, kind, time, tensor, slice_number, offset, size, bytes_in_flight):
        """Follows one event. Events come in the order of time.

        Args:
            kind: str, one of `hvd_p3._engine.RECORD_KINDS`.
            time: int, of the timeline's clock.
            tensor: int, handle.
            slice_number: int.
            offset: int.
            size: int, bytes.
            bytes_in_flight: int.
        """
        self._last = time
        if kind == "submitted":
            label, priority = self._tensors[tensor]
            self._current[tensor] = Reduction(label, priority, size, time)
            # A forward pass may come to a tensor before the engine has looked into its inbox.
            self._current[tensor].wait_began = self._waiting.get(tensor)
            self._rank.reductions.append(self._current[tensor])
        elif kind == "negotiated":
            self._set(tensor, "negotiated", time)
        elif kind == "queued":
            self._queued[tensor, offset] = time
        elif kind == "started":
            label, priority = self._tensors[tensor]
            started = Slice(slice_number, [], priority, offset, size, time, time)
            self._in_flight[slice_number] = started, []
            self._rank.slices.append(started)
            self._join(slice_number, tensor, self._queued.pop((tensor, offset), None))
            self._rank.bytes_in_flight.append((time, bytes_in_flight))
        elif kind == "member":
            if slice_number not in self._in_flight:
                return  # it started before the recording
            first = self._current.get(self._in_flight[slice_number][1][0])
            self._join(slice_number, tensor, first.queued if first else None)
        elif kind == "finished":
            self._finish(time, slice_number, tensor, offset, size)
            self._rank.bytes_in_flight.append((time, bytes_in_flight))
        elif kind == "completed":
            self._set(tensor, "finished", self._last_finish.get(tensor))
        elif kind == "applied":
            self._set(tensor, "applied", time)
        elif kind == "wait began":
            self._begin_wait(tensor, time)
        elif kind == "wait ended":
            if tensor not in self._waiting:  # it began before the recording
                self._begin_wait(tensor, self._rank.start)
            self._end_wait(tensor, time)
        elif kind == "round":
            self._rank.rounds.append(time)

    def end(self):
        """Ends what goes on at the end of the recording.

        If events were dropped, nothing is known from the first of these on: the recording ends with
        the last event before it, and how long a wait that goes on then took is unknown.
        """
        if self._rank.dropped:
            self._rank.end = max(self._last, self._rank.start)
        for unfinished, _ in self._in_flight.values():
            unfinished.end = self._rank.end
            unfinished.unfinished = True
        for tensor in sorted(self._waiting, key=self._waiting.get, reverse=True):
            if self._rank.dropped:
                break
            self._end_wait(tensor, self._rank.end)
        self._rank.slices.sort(key=lambda each: each.start)

    def _set(self, tensor, phase, time):
        if tensor in self._current:
            setattr(self._current[tensor], phase, time)

    def _join(self, slice_number, tensor, queued):
        joined, handles = self._in_flight[slice_number]
        joined.tensors.append(self._tensors[tensor][0])
        handles.append(tensor)
        reduction = self._current.get(tensor)
        if reduction is None:
            return
        reduction.slices.append(slice_number)
        if reduction.started is None:
            reduction.started = joined.start
        if queued is not None:
            reduction.queued = max(queued, reduction.queued or queued)

    def _finish(self, time, slice_number, tensor, offset, size):
        if slice_number in self._in_flight:
            finished, handles = self._in_flight.pop(slice_number)
        else:  # it started before the recording
            label, priority = self._tensors[tensor]
            finished = Slice(slice_number, [label], priority, offset, size, self._rank.start, time)
            handles = [tensor]
            self._rank.slices.append(finished)
        finished.end = time
        for handle in handles:
            self._last_finish[handle] = time

    def _begin_wait(self, tensor, time):
        if not self._waiting:
            self._wait_start = time
            self._waited = set()
        self._waiting[tensor] = time
        self._waited.add(tensor)
        reduction = self._current.get(tensor)
        if reduction is not None and reduction.finished is None:
            reduction.wait_began = time

    def _end_wait(self, tensor, time):
        del self._waiting[tensor]
        if not self._waiting:
            label, _ = self._tensors[tensor]
            self._rank.waits.append(Wait(label, len(self._waited), self._wait_start, time))
