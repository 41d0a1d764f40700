"""The engine of hvd_p3 with all its ranks: slices, priorities, credit and negotiation rounds.

As `csrc/core/schedule.cc` decides: of the slices that are ready on all ranks the most urgent starts
next, while the bytes in flight are within the credit and at most 64 slices are. What ranks find out
counts from the end of the next negotiation round on: that a gradient exists, and that a slice is
finished. Slices go over the link one after another, in the order of their starts.
"""

import heapq

from hvd_p3_tools.planner.simulation.sent import Sent

WINDOW = 64  # slices in flight, at most


class PriorityEngine:
    """The engine.

    Args:
        loop: `EventLoop`.
        plan: list of `PlannedSlice`.
        transfer: `transfer.AllReduceTransfer` or `ServerTransfer`.
        credit_bytes: int.
        priorities: bool. Whether the most urgent slice is next; otherwise the first that was ready.
        reduced: Function that is called with the index of a gradient when it is reduced.
        recorder: `recording.Recorder`, or None.
    """

    def __init__(self, loop, plan, transfer, credit_bytes, priorities, reduced, recorder=None):
        self._loop = loop
        self._plan = plan
        self._costs = [(transfer.wire_s(each.bytes), transfer.delay_s(each.bytes)) for each in plan]
        self._round_s = transfer.round_s
        self._credit_bytes = credit_bytes
        self._priorities = priorities
        self._reduced = reduced
        self._recorder = recorder
        self._slices_of = {}  # gradient -> its slices
        for index, each in enumerate(plan):
            for tensor in each.tensors:
                self._slices_of.setdefault(tensor, []).append(index)
        self._missing = [len(each.tensors) for each in plan]  # members that are not ready
        self._unfinished = {}  # gradient -> slices that are not reduced
        self._queue = []
        self._queued = 0
        self._new_ready, self._new_finished = [], []
        self._in_round = False
        self._slots = 0  # slices in flight, or finished without all ranks knowing
        self._bytes_in_flight = 0
        self._wire_free = 0.0
        self.sent = []  # `Sent` of each slice that has started

    def ready(self, tensors):
        """Says that gradients exist on all ranks.

        Args:
            tensors: list of int.
        """
        self._new_ready.extend(tensors)
        self._begin_round()

    def _begin_round(self):
        if self._in_round or not (self._new_ready or self._new_finished):
            return
        self._in_round = True
        facts = self._new_ready, self._new_finished
        self._new_ready, self._new_finished = [], []
        self._loop.at(self._loop.now + self._round_s, self._end_round, *facts)

    def _end_round(self, ready, finished):
        self._in_round = False
        for index in finished:
            self._slots -= 1
            self._bytes_in_flight -= self._plan[index].bytes
        for tensor in ready:
            self._unfinished[tensor] = len(self._slices_of[tensor])
            if self._recorder is not None:
                self._recorder.negotiated(tensor)
            for index in self._slices_of[tensor]:
                self._missing[index] -= 1
                if self._missing[index] == 0:
                    self._missing[index] = len(self._plan[index].tensors)  # for the next step
                    self._enqueue(index)
        if self._recorder is not None and self._round_s > 0:
            self._recorder.round_ended()
        self._start_next()
        self._begin_round()

    def _enqueue(self, index):
        # Slices are planned in the order of priority.
        order = index if self._priorities else self._queued
        self._queued += 1
        heapq.heappush(self._queue, (order, index))
        if self._recorder is not None:
            self._recorder.queued(index)

    def _start_next(self):
        now = self._loop.now
        while self._queue and self._slots < WINDOW:
            _, index = self._queue[0]
            size = self._plan[index].bytes
            if self._slots > 0 and self._bytes_in_flight + size > self._credit_bytes:
                break
            heapq.heappop(self._queue)
            self._slots += 1
            self._bytes_in_flight += size
            wire_s, delay_s = self._costs[index]
            self._wire_free = max(now, self._wire_free) + wire_s
            number = len(self.sent)
            end = self._wire_free + delay_s
            self.sent.append(Sent(now, end, wire_s, size))
            if self._recorder is not None:
                self._recorder.started(number, index, self._bytes_in_flight)
            self._loop.at(end, self._finish, number, index)

    def _finish(self, number, index):
        self._new_finished.append(index)
        if self._recorder is not None:
            self._recorder.finished(number, self._bytes_in_flight - self._plan[index].bytes)
        for tensor in self._plan[index].tensors:
            self._unfinished[tensor] -= 1
            if self._unfinished[tensor] == 0:
                self._reduced(tensor)
        self._begin_round()
