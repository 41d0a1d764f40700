"""Measures all-reduces among the ranks of a job."""

import dataclasses

import horovod.tensorflow as horovod
import tensorflow as tf

from hvd_p3 import ops, process
from hvd_p3_tools.planner import fit

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
    tensors = {size: tf.zeros([size // tf.float32.size], tf.float32) for size in sizes}

    def all_reduce(size):
        ops.all_reduce(tensors[size], name=f"hvd_p3.planner.{size}").numpy()

    fitted = fit.measure_all_reduce(all_reduce, process.size(), list(sizes), repeats)
    return dataclasses.replace(fitted, hosts=_hosts())


def _hosts():
    """The number of hosts: one rank of each has the local rank 0."""
    first = tf.constant(float(process.local_rank() == 0))
    return int(ops.all_reduce(first, name="hvd_p3.planner.hosts", op=horovod.Sum))
