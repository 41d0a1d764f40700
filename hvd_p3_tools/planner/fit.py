"""Fits the α-β model to measured all-reduces."""

import statistics
import time

import numpy as np

from hvd_p3_tools.planner import bounds
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.profile import AllReduceFit

# From here on an all-reduce takes as long as its bytes. Shorter messages may go faster than a link
# carries for long, where it allows for bursts, or be sent in another way than long ones.
LONG_BYTES = 1 << 20


def measure_all_reduce(all_reduce, ranks, sizes, repeats):
    """Times all-reduces, one after another, and fits them.

    Args:
        all_reduce: Function of a size in bytes, that reduces as many over all ranks and waits for
            the result.
        ranks: int, at least 2.
        sizes: list of int, bytes.
        repeats: int. The median of so many counts, after one that does not.

    Returns:
        `profile.AllReduceFit`, of the times of this rank.

    Raises:
        PlannerError: If the times do not determine latency and bandwidth.
    """
    seconds = []
    for size in sizes:
        all_reduce(size)  # ranks agree on it, and meet here
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            all_reduce(size)
            times.append(time.perf_counter() - start)
        seconds.append(statistics.median(times))
    return fit_all_reduce(ranks, sizes, seconds)


def fit_all_reduce(ranks, sizes, seconds):
    """Fits `α + β · wire bytes`: β to the long all-reduces, then α to the others.

    Both with the least sum of squared relative errors, since otherwise the largest size alone would
    decide. All sizes count for both if fewer than two are of at least `LONG_BYTES`.

    Args:
        ranks: int, at least 2.
        sizes: list of int, bytes of the data of a rank; at least two that differ.
        seconds: list of float, what each took; above 0.

    Returns:
        `profile.AllReduceFit`.

    Raises:
        PlannerError: If the data do not determine both numbers.
    """
    if ranks < 2:
        raise PlannerError(f"an all-reduce needs at least 2 ranks. Received: {ranks}")
    if len(set(sizes)) < 2 or min(seconds) <= 0:
        raise PlannerError("a fit needs two sizes or more, and times above 0")
    wire = np.array([bounds.communication_s(size, ranks, 1.0) for size in sizes])
    measured = np.array(seconds)
    long = np.array(sizes) >= LONG_BYTES
    if len(set(np.array(sizes)[long])) < 2:
        long = np.full(len(sizes), True)
    latency_s, s_per_byte = _line(wire[long], measured[long])
    if s_per_byte <= 0:
        raise PlannerError(
            "larger all-reduces did not take longer, so no bandwidth can be told; measure again "
            "with less else going on"
        )
    if not long.all():
        left, weights = (measured - s_per_byte * wire)[~long], measured[~long] ** -2
        latency_s = max(0.0, np.average(left, weights=weights))
    errors = np.abs(latency_s + s_per_byte * wire - measured) / measured
    return AllReduceFit(
        ranks, float(latency_s), float(1 / s_per_byte), float(statistics.median(errors))
    )


def _line(wire, measured):
    """Latency, not negative, and seconds per byte."""
    columns = np.stack([1 / measured, wire / measured], axis=1)
    latency_s, s_per_byte = np.linalg.lstsq(columns, np.ones(len(measured)), rcond=None)[0]
    if latency_s < 0:  # noise on a network without latency
        latency_s = 0.0
        (s_per_byte,) = np.linalg.lstsq(columns[:, 1:], np.ones(len(measured)), rcond=None)[0]
    return latency_s, s_per_byte
