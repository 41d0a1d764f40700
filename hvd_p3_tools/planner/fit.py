"""Fits the α-β model to measured all-reduces."""

import statistics

import numpy as np

from hvd_p3_tools.planner import bounds
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.profile import AllReduceFit


def fit_all_reduce(ranks, sizes, seconds):
    """Finds α and β with the least sum of squared relative errors of `α + β · wire bytes`.

    Relative, since otherwise the largest size alone would decide.

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
    columns = np.stack([1 / measured, wire / measured], axis=1)
    latency_s, s_per_byte = np.linalg.lstsq(columns, np.ones(len(measured)), rcond=None)[0]
    if latency_s < 0:  # noise on a network without latency
        latency_s = 0.0
        (s_per_byte,) = np.linalg.lstsq(columns[:, 1:], np.ones(len(measured)), rcond=None)[0]
    if s_per_byte <= 0:
        raise PlannerError(
            "larger all-reduces did not take longer, so no bandwidth can be told; measure again "
            "with less else going on"
        )
    errors = np.abs(latency_s + s_per_byte * wire - measured) / measured
    return AllReduceFit(
        ranks, float(latency_s), float(1 / s_per_byte), float(statistics.median(errors))
    )
