"""Makes the timeline of a simulation, in the model of timelines of real runs."""

from hvd_p3_tools.timeline.model import Rank, Reduction, Slice, Timeline, Wait


class Recorder:
    """Follows a simulation. What the engine does is the same on all ranks.

    Args:
        loop: `EventLoop`.
        names: list of str, of gradients; the index of each is its priority.
        sizes: list of int, their bytes.
        plan: list of `PlannedSlice`, or None for an engine that does not cut gradients.
    """

    def __init__(self, loop, names, sizes, plan=None):
        self._loop = loop
        self._names = names
        self._sizes = sizes
        self._plan = plan
        self._ranks = {}  # process -> Rank
        self._current = {}  # process -> {gradient: Reduction}
        self._in_flight = {}  # number -> (slices of all ranks, gradients)

    def add(self, process, number):
        """Adds a rank.

        Args:
            process: `RankProcess`, or what stands for it.
            number: int, of the rank.
        """
        self._ranks[process] = Rank(number, "simulation")
        self._current[process] = {}

    def pushed(self, process, tensors):
        """The rank has made gradients."""
        for tensor in tensors:
            reduction = Reduction(self._names[tensor], tensor, self._sizes[tensor], self._now())
            self._current[process][tensor] = reduction
            self._ranks[process].reductions.append(reduction)

    def negotiated(self, tensor):
        """All ranks know that a gradient exists on all."""
        self._set(tensor, "negotiated")

    def queued(self, index):
        """A planned slice is in the queue."""
        for tensor in self._plan[index].tensors:
            self._set(tensor, "queued")

    def queued_tensor(self, tensor):
        """A gradient that is not cut is in the queue."""
        self._set(tensor, "queued")

    def started(self, number, index, bytes_in_flight):
        """A planned slice is sent."""
        planned = self._plan[index]
        self._start(number, planned.tensors, planned.offset, planned.bytes, bytes_in_flight)

    def started_tensors(self, number, tensors, size):
        """Gradients that are not cut are sent together."""
        self._start(number, tensors, 0, size, size)

    def finished(self, number, bytes_in_flight):
        """What was sent is reduced."""
        slices, tensors = self._in_flight.pop(number)
        for each in slices:
            each.end = self._now()
        for tensor in tensors:
            self._set(tensor, "finished")  # the last of its slices has the last word
        for rank in self._ranks.values():
            rank.bytes_in_flight.append((self._now(), bytes_in_flight))

    def round_ended(self):
        """A negotiation round has ended."""
        for rank in self._ranks.values():
            rank.rounds.append(self._now())

    def wait_began(self, process, tensors):
        """The rank has come to gradients, of which some are not reduced yet."""
        for tensor in tensors:
            reduction = self._current[process].get(tensor)
            if reduction is not None and reduction.finished is None:
                reduction.wait_began = self._now()

    def waited(self, process, tensor, tensors, start):
        """The rank has waited for a number of gradients, for `tensor` at the end."""
        wait = Wait(self._names[tensor], tensors, _nanoseconds(start), self._now())
        self._ranks[process].waits.append(wait)

    def applied(self, process, tensors):
        """The rank's updates have taken gradients."""
        for tensor in tensors:
            reduction = self._current[process].get(tensor)
            if reduction is not None:
                reduction.applied = self._now()

    def timeline(self, settings):
        """Ends the recording.

        Args:
            settings: dict, of what was simulated.

        Returns:
            `Timeline`.
        """
        ranks = sorted(self._ranks.values(), key=lambda rank: rank.number)
        for slices, _ in self._in_flight.values():
            for each in slices:
                each.end = self._now()
                each.unfinished = True
        for rank in ranks:
            rank.end = self._now()
        return Timeline(ranks, settings, version="simulation")

    def _start(self, number, tensors, offset, size, bytes_in_flight):
        slices = []
        for process, rank in self._ranks.items():
            names = [self._names[tensor] for tensor in tensors]
            started = Slice(number, names, min(tensors), offset, size, self._now(), self._now())
            slices.append(started)
            rank.slices.append(started)
            rank.bytes_in_flight.append((self._now(), bytes_in_flight))
            for tensor in tensors:
                reduction = self._current[process].get(tensor)
                reduction.slices.append(number)
                if reduction.started is None:
                    reduction.started = self._now()
        self._in_flight[number] = slices, tensors

    def _set(self, tensor, phase):
        for current in self._current.values():
            setattr(current[tensor], phase, self._now())

    def _now(self):
        return _nanoseconds(self._loop.now)


def _nanoseconds(seconds):
    return round(seconds * 1e9)
