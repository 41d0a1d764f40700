"""One clock for all ranks: its estimate between two threads with clocks of a known difference."""

import queue
import threading
import time

import numpy as np
import pytest

from hvd_p3 import clock

_PATIENCE_S = 20.0


class _Channel:
    """One end of a connection between two threads."""

    def __init__(self, outgoing, incoming):
        self._outgoing, self._incoming = outgoing, incoming

    def send(self, rank, message, tag, timeout_s):
        self._outgoing.put((tag, message))

    def receive(self, rank, tag, timeout_s):
        try:
            received_tag, message = self._incoming.get(timeout=timeout_s)
        except queue.Empty:
            raise RuntimeError(f"rank {rank} sent no message within {timeout_s} s") from None
        assert received_tag == tag
        return message


def _pair():
    there, back = queue.Queue(), queue.Queue()
    return _Channel(there, back), _Channel(back, there)


@pytest.mark.parametrize("ahead", [0, 5_000_000_000, -7_000_000_000_000])
def test_offset_is_within_its_own_error(ahead):
    root, other = _pair()

    def now_there():
        return time.monotonic_ns() + ahead

    thread = threading.Thread(target=clock.answer, args=(other, 3, _PATIENCE_S, now_there))
    thread.start()
    offset = clock.measure(root, 1, 3, _PATIENCE_S)
    thread.join(_PATIENCE_S)
    assert not thread.is_alive()
    assert abs(offset.offset - ahead) <= offset.error
    assert 0 < offset.error < _PATIENCE_S * 1e9


def test_quickest_answer_counts():
    """The first answers are late by a second on the way back, which would be half a second of
    error."""
    times = iter(range(10**6))
    slow = iter([10**9] * (clock.ROUND_TRIPS - 1) + [10])
    passed = 0

    def now():
        nonlocal passed
        passed += next(times) % 2 and next(slow)  # the second reading of each round trip
        return passed

    class Immediate:
        def send(self, rank, message, tag, timeout_s):
            pass

        def receive(self, rank, tag, timeout_s):
            return clock._TIME.pack(passed + 42)

    offset = clock.measure(Immediate(), 1, 0, _PATIENCE_S, now)
    assert offset.error == 5
    assert offset.offset == 42 - 5


def test_rank_that_does_not_answer():
    root, other = _pair()
    with pytest.raises(RuntimeError, match="rank 1 sent no message"):
        clock.measure(root, 1, 0, 0.01)
    with pytest.raises(RuntimeError, match="rank 0 sent no message"):
        other.receive(0, 0, 0.01)  # the question
        clock.answer(other, 0, 0.01)


def test_times_between_two_measurements_are_interpolated():
    """A clock that is 1000 s ahead and gains 100 us in 10 s."""
    start = clock.Offset(10**9, 10**12, 5)
    end = clock.Offset(11 * 10**9, 10**12 + 100_000, 5)
    on_rank_0 = np.array([10**9, 6 * 10**9, 11 * 10**9, 16 * 10**9])
    there = on_rank_0 + 10**12 + np.array([0, 50_000, 100_000, 150_000])
    assert clock.to_rank_0(there, start, end).tolist() == on_rank_0.tolist()


def test_one_measurement_is_enough():
    start = clock.Offset(10**9, -500, 5)
    assert clock.to_rank_0(np.array([1500]), start, start).tolist() == [2000]
    assert clock.to_rank_0(np.array([1500]), clock.SAME, clock.SAME).tolist() == [1500]
