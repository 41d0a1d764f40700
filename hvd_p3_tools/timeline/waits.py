"""Why a forward pass waited: what happened meanwhile to the tensor that it waited for."""

import dataclasses

from hvd_p3_tools.timeline.model import cut, length


@dataclasses.dataclass
class Explanation:
    """What a wait was spent on, in nanoseconds. The parts add up to the wait.

    Args:
        rank: int, that waited.
        wait: `model.Wait`.
        parts: dict of reason to int, the longest first. A reason completes "It waited because…".
    """

    rank: int
    wait: object
    parts: dict


class Explainer:
    """Explains the waits of a timeline.

    Args:
        timeline: `model.Timeline`.
    """

    def __init__(self, timeline):
        self._ranks = {rank.number: rank for rank in timeline.ranks}
        self._by_tensor = {}  # (rank, tensor) -> reductions
        self._slices = {}  # (rank, number) -> slice
        # (rank, slice number) -> reductions of its tensors
        self._by_slice = {}
        for rank in timeline.ranks:
            for each in rank.slices:
                self._slices[rank.number, each.number] = each
            for reduction in rank.reductions:
                self._by_tensor.setdefault((rank.number, reduction.tensor), []).append(reduction)
                for number in reduction.slices:
                    self._by_slice.setdefault((rank.number, number), []).append(reduction)

    def worst(self, count):
        """Returns the explanations of the longest waits of all ranks, the longest first."""
        waits = [(rank.number, wait) for rank in self._ranks.values() for wait in rank.waits]
        waits.sort(key=lambda each: each[1].start - each[1].end)
        return [self.explain(rank, wait) for rank, wait in waits[:count]]

    def explain(self, rank, wait):
        """Returns the `Explanation` of a wait.

        Args:
            rank: int, that waited.
            wait: `model.Wait` of that rank.
        """
        reduction = self._waited_for(rank, wait)
        if reduction is None:
            whole = {"its reduction began before the recording": wait.end - wait.start}
            return Explanation(rank, wait, whole)
        parts = {}
        boundary = wait.start

        def spend_until(time, reason):
            nonlocal boundary
            if time is None:
                return
            time = min(max(time, boundary), wait.end)
            if time > boundary:
                parts[reason] = parts.get(reason, 0) + time - boundary
            boundary = time

        last_rank, last_ready = self._last_ready(reduction)
        spend_until(reduction.ready, "it was not ready on this rank")
        spend_until(last_ready, f"it was not ready on rank {last_rank}")
        spend_until(reduction.negotiated, "ranks agreed on what is ready (negotiation)")
        spend_until(reduction.queued, self._why_incomplete(rank, reduction))
        if reduction.queued is not None:
            until = wait.end if reduction.finished is None else min(reduction.finished, wait.end)
            self._spend_in_queue(rank, reduction, boundary, until, parts)
            boundary = max(boundary, until)
        spend_until(
            wait.end,
            "it was not reduced when the recording ended"
            if reduction.negotiated is None
            else "the result was handed over",
        )
        longest_first = sorted(parts.items(), key=lambda part: -part[1])
        return Explanation(rank, wait, dict(longest_first))

    def _waited_for(self, rank, wait):
        candidates = self._by_tensor.get((rank, wait.tensor), [])
        # The engine may look at a submission a moment after the forward pass has come for it.
        waited = [each for each in candidates if each.ready <= wait.end]
        if not waited or (waited[-1].finished or wait.end) < wait.start:
            return None
        return waited[-1]

    def _last_ready(self, reduction):
        """The rank on which the tensor was ready last, and when; by the slices, which all ranks
        number alike."""
        times = [
            (each.ready, rank)
            for rank in self._ranks
            for number in reduction.slices[:1]
            for each in self._by_slice.get((rank, number), [])
            if each.tensor == reduction.tensor
        ]
        if not times:
            return None, None
        time, rank = max(times)
        return rank, time

    def _why_incomplete(self, rank, reduction):
        others = [
            each
            for number in reduction.slices
            for each in self._by_slice[rank, number]
            if each.negotiated is not None
        ]
        if not others:
            return "its slice was not complete"
        last = max(others, key=lambda each: each.negotiated)
        last_rank, _ = self._last_ready(last)
        return f"its slice is shared with {last.tensor}, which was not ready on rank {last_rank}"

    def _spend_in_queue(self, rank, reduction, start, end, parts):
        """Divides the time from the queue to the result between the wire and the queue."""
        if end <= start:
            return
        own = [
            self._slices[rank, number]
            for number in reduction.slices
            if (rank, number) in self._slices
        ]
        on_wire = cut([(each.start, each.end) for each in own], start, end)
        wire = length(on_wire)
        if wire > 0:
            parts["its slices were on the wire"] = wire
        queue = end - start - wire
        if queue > 0:
            reason = self._why_queued(rank, reduction, start, end)
            parts[reason] = parts.get(reason, 0) + queue

    def _why_queued(self, rank, reduction, start, end):
        urgent, others = 0, 0
        for each in self._ranks[rank].slices:
            if each.number in reduction.slices or not cut([(each.start, each.end)], start, end):
                continue
            if each.priority < reduction.priority:
                urgent += each.bytes
            else:
                others += each.bytes
        if urgent >= others and urgent > 0:
            return "it was queued behind more urgent slices"
        if others > 0:
            return "it was queued behind slices that were in flight already"
        return "it was queued until all ranks had finished earlier slices"
