"""Records what was reduced when, and what the forward pass waited for, into a file for Perfetto."""

import os

from hvd_p3 import process, timeline_recorder


def start_timeline(file_path, mark_cycles=False):
    """Starts to record a timeline. Call on all ranks, at the same place of the program.

    The file has Chrome trace events of all ranks on one clock; open it at https://ui.perfetto.dev,
    or with the command `hvd-p3 timeline`. Each rank keeps up to 262144 events in memory (15 MB) and
    drops later ones: of a model with 160 variables and 100 MB of gradients, that is about 75 steps.
    The setting `timeline` (HVD_P3_TIMELINE) records the whole program.

    Args:
        file_path: str or path of the file. That of rank 0 counts, which writes it. An existing file
            is replaced.
        mark_cycles: bool. Whether to record each negotiation round too. That of rank 0 counts.

    Raises:
        ValueError: If hvd_p3 is not initialised.
        OSError: On all ranks, if rank 0 cannot write the file.
        RuntimeError: If a timeline is being recorded already, not all ranks call this within 60 s,
            or Horovod runs on Gloo.

    Example:

    ```python
    hvd_p3.start_timeline("timeline.json")
    model.fit(x, y, steps_per_epoch=20, callbacks=[hvd_p3.callbacks.P3Callback()])
    hvd_p3.stop_timeline()
    ```
    """
    _recorder().start(os.fspath(file_path), bool(mark_cycles))


def stop_timeline(timeout_s=timeline_recorder.MEETING_S):
    """Ends the recording and writes the file. Call on all ranks.

    Returns when the file is complete on rank 0, and on other ranks when their part is sent. If some
    rank does not come, each rank that did writes its own part to the file's path with `.rank` and
    its number added, and warns; the command `hvd-p3 timeline` reads them together.
    `hvd_p3.shutdown` and the end of the program stop a recording too.

    Args:
        timeout_s: float. How long to wait for other ranks to call this, in seconds.

    Raises:
        ValueError: If hvd_p3 is not initialised.
        RuntimeError: If no timeline is being recorded.
        OSError: If the file cannot be written.

    Example:

    ```python
    hvd_p3.stop_timeline()
    ```
    """
    _recorder().stop(float(timeout_s))


def _recorder():
    recorder = process.current().timeline
    if recorder is None:
        raise RuntimeError(
            "hvd_p3 records timelines of its own priority queue only, and Horovod runs on Gloo: "
            "launch with `horovodrun --mpi`, or use Horovod's HOROVOD_TIMELINE."
        )
    return recorder
