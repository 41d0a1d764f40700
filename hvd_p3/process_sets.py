"""Process sets: parts of the job for which collectives can be called. Horovod's own."""

from horovod.tensorflow import ProcessSet, global_process_set
from horovod.tensorflow import add_process_set as _horovod_add
from horovod.tensorflow import remove_process_set as _horovod_remove

from hvd_p3 import process

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]


def add_process_set(process_set):
    """Adds a process set after `init`. Call on all ranks of the job, also those not in it.

    Needs `hvd_p3.init(process_sets="dynamic")`. Sets that are known from the start can be given to
    `init` as a list instead.

    Args:
        process_set: `hvd_p3.ProcessSet`, or a list of ranks.

    Returns:
        The `hvd_p3.ProcessSet`, ready for use.

    Raises:
        ValueError: If hvd_p3 is not initialised, the job was not started for dynamic process sets,
            or there is a set of these ranks.

    Example:

    ```python
    hvd_p3.init(process_sets="dynamic")
    even = hvd_p3.add_process_set([0, 2])
    if even.included():
        total = hvd_p3.allreduce(1.0, op=hvd_p3.Sum, process_set=even)
    ```
    """
    process.current()
    return _horovod_add(process_set)


def remove_process_set(process_set):
    """Removes a process set that `add_process_set` or `init` made. Call on all ranks of the job.

    Args:
        process_set: `hvd_p3.ProcessSet`.

    Returns:
        bool. Whether it was removed. The set of all ranks cannot be.

    Raises:
        ValueError: If hvd_p3 is not initialised, or the job was not started for dynamic process
            sets.

    Example:

    ```python
    hvd_p3.remove_process_set(even)
    ```
    """
    process.current()
    return _horovod_remove(process_set)
