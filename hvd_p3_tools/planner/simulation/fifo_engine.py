"""Stock Horovod with all its ranks: gradients in the order in which they become ready, fused.

Once in a cycle the coordinator collects what is ready on all ranks, and answers with lists of
gradients to reduce together: it fuses those that follow one another while they fit the fusion
threshold. They are reduced one after another, and the next cycle begins after the last.
"""

import math

from hvd_p3_tools.planner.simulation.sent import Sent

_ROUNDING = 1e-6  # cycles: of floats must not cost one


class FifoEngine:
    """The engine.

    Args:
        loop: `EventLoop`.
        sizes: list of int, bytes of each gradient.
        transfer: `transfer.AllReduceTransfer`.
        fusion_bytes: int, the fusion threshold; 0 turns fusion off.
        cycle_s: float, the least time from the start of a cycle to the next.
        reduced: Function that is called with the index of a gradient when it is reduced.
        recorder: `recording.Recorder`, or None.
    """

    def __init__(self, loop, sizes, transfer, fusion_bytes, cycle_s, reduced, recorder=None):
        self._loop = loop
        self._sizes = sizes
        self._transfer = transfer
        self._fusion_bytes = fusion_bytes
        self._cycle_s = cycle_s
        self._reduced = reduced
        self._recorder = recorder
        self._ready = []  # gradients, in the order in which they became ready on all ranks
        self._scheduled = False  # a cycle with something to do is going on or scheduled
        self._first_cycle = 0.0  # cycles begin at multiples of cycle_s from here on
        self.sent = []  # `Sent` of each buffer that has started

    def ready(self, tensors):
        """Says that gradients exist on all ranks.

        Args:
            tensors: list of int, in the order in which they were made.
        """
        self._ready.extend(tensors)
        self._schedule_cycle()

    def _schedule_cycle(self):
        if self._scheduled or not self._ready:
            return
        self._scheduled = True
        start = max(self._loop.now, self._first_cycle)
        if self._cycle_s > 0:
            cycles = math.ceil((start - self._first_cycle) / self._cycle_s - _ROUNDING)
            start = max(start, self._first_cycle + cycles * self._cycle_s)
        self._loop.at(start, self._cycle)

    def _cycle(self):
        collected, self._ready = self._ready, []
        started = self._loop.now
        # Requests to the coordinator, and its answer.
        negotiated = started + 2 * self._transfer.round_s
        self._loop.at(negotiated, self._reduce, started, self._fused(collected))

    def _fused(self, tensors):
        buffers = []
        size = 0
        for tensor in tensors:
            if buffers and size + self._sizes[tensor] <= self._fusion_bytes:
                buffers[-1].append(tensor)
                size += self._sizes[tensor]
            else:
                buffers.append([tensor])
                size = self._sizes[tensor]
        return buffers

    def _reduce(self, cycle_started, buffers):
        if self._recorder is not None:
            for tensor in (each for buffer in buffers for each in buffer):
                self._recorder.negotiated(tensor)
                self._recorder.queued_tensor(tensor)
        self._next_buffer(cycle_started, buffers, 0)

    def _next_buffer(self, cycle_started, buffers, index):
        if index == len(buffers):
            self._first_cycle = max(self._loop.now, cycle_started + self._cycle_s)
            self._scheduled = False
            self._schedule_cycle()
            return
        size = sum(self._sizes[tensor] for tensor in buffers[index])
        wire_s = self._transfer.wire_s(size)
        end = self._loop.now + wire_s + self._transfer.delay_s(size)
        number = len(self.sent)
        self.sent.append(Sent(self._loop.now, end, wire_s, size))
        if self._recorder is not None:
            self._recorder.started_tensors(number, buffers[index], size)
        self._loop.at(end, self._finish, cycle_started, buffers, index, number)

    def _finish(self, cycle_started, buffers, index, number):
        if self._recorder is not None:
            self._recorder.finished(number, 0)
        for tensor in buffers[index]:
            self._reduced(tensor)
        self._next_buffer(cycle_started, buffers, index + 1)
