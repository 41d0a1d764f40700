"""Measures all-reduces among the ranks of a job."""

import statistics
import time

import tensorflow as tf

from hvd_p3 import ops, process
from hvd_p3_tools.planner.fit import fit_all_reduce

_SIZES = tuple(4**power for power in range(6, 13))  # 4 KiB to 16 MiB
_REPEATS = 7


def measure_all_reduce(sizes=_SIZES, repeats=_REPEATS):
    """Measures what all-reduces of several sizes take, and fits latency and bandwidth.

    All ranks call it at the same place of the program. The reductions go the way of gradients: in
    slices, with negotiation, which is part of the latency.

    Args:
        sizes: iterable of int, bytes; at least two.
        repeats: int. The median of so many counts.

    Returns:
        `hvd_p3_tools.planner.profile.AllReduceFit`, of the times of this rank.

    Raises:
        PlannerError: If there is one rank, or the times fit no bandwidth.

    Example:

    ```python
    fit = planner.measure_all_reduce()
    print(fit.latency_s, fit.bytes_per_s, fit.relative_error)
    ```
    """
    seconds = []
    for size in sizes:
        tensor = tf.zeros([size // tf.float32.size], tf.float32)
        name = f"hvd_p3.planner.{size}"
        ops.all_reduce(tensor, name=name).numpy()  # ranks agree on it, and meet here
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            ops.all_reduce(tensor, name=name).numpy()
            times.append(time.perf_counter() - start)
        seconds.append(statistics.median(times))
    return fit_all_reduce(process.size(), list(sizes), seconds)
