"""The numbers of a timeline, of each rank and of all."""

import collections
import dataclasses
import itertools
import statistics

from hvd_p3_tools.timeline.model import length


@dataclasses.dataclass
class RankSummary:
    """Times are seconds.

    Args:
        rank: int.
        recorded_s: float, length of the recording: of a record that was full, to its last event.
        steps: int, training steps: how often the most frequent tensor was reduced.
        step_s: float or None, the median time from one step to the next.
        slices: int, slices reduced.
        bytes: int, payload reduced.
        communication_s: float, time with at least one slice in flight, of those that finished.
        waited_s: float, time in which the forward pass waited.
        dropped: int, events that were not recorded.
        clock_error_s: float.
    """

    rank: int
    recorded_s: float
    steps: int
    step_s: float | None
    slices: int
    bytes: int
    communication_s: float
    waited_s: float
    dropped: int
    clock_error_s: float

    @property
    def hidden_share(self):
        """Share of the communication that was hidden behind computation, as `P3Callback` has it."""
        if self.communication_s <= 0:
            return 0.0
        return min(1.0, max(0.0, 1.0 - self.waited_s / self.communication_s))

    @property
    def busy_share(self):
        """Share of the recorded time with something in flight."""
        return self.communication_s / self.recorded_s if self.recorded_s > 0 else 0.0

    @property
    def bytes_per_s(self):
        """Payload reduced for each second with something in flight."""
        return self.bytes / self.communication_s if self.communication_s > 0 else 0.0


def summarize(rank):
    """Returns the `RankSummary` of a `model.Rank`."""
    finished = [each for each in rank.slices if not each.unfinished]
    starts = step_starts(rank)
    intervals = [later - earlier for earlier, later in itertools.pairwise(starts)]
    return RankSummary(
        rank=rank.number,
        recorded_s=(rank.end - rank.start) / 1e9,
        steps=len(starts),
        step_s=statistics.median(intervals) / 1e9 if intervals else None,
        slices=len(finished),
        bytes=sum(each.bytes for each in finished),
        communication_s=length((each.start, each.end) for each in finished) / 1e9,
        waited_s=length((each.start, each.end) for each in rank.waits) / 1e9,
        dropped=rank.dropped,
        clock_error_s=rank.clock_error / 1e9,
    )


def step_starts(rank):
    """Returns when the most frequent tensor of a rank became ready, which it does once a step.

    Of several, the one that was ready first, in training the last layer's.
    """
    times = collections.defaultdict(list)
    for reduction in rank.reductions:
        times[reduction.tensor].append(reduction.ready)
    return max(times.values(), key=len, default=[])


def total(summaries):
    """Returns a `RankSummary` with the sums over ranks, and the median step time; `rank` is -1."""
    steps = [each.step_s for each in summaries if each.step_s is not None]
    return RankSummary(
        rank=-1,
        recorded_s=sum(each.recorded_s for each in summaries),
        steps=max((each.steps for each in summaries), default=0),
        step_s=statistics.median(steps) if steps else None,
        slices=sum(each.slices for each in summaries),
        bytes=sum(each.bytes for each in summaries),
        communication_s=sum(each.communication_s for each in summaries),
        waited_s=sum(each.waited_s for each in summaries),
        dropped=sum(each.dropped for each in summaries),
        clock_error_s=max((each.clock_error_s for each in summaries), default=0.0),
    )
