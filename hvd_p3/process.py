"""The life of hvd_p3 in one process: start, stop, and who the other ranks are."""

import atexit
import os
import sys
import threading
import warnings

import horovod.tensorflow as horovod

from hvd_p3 import _engine, _environment, agreement, configuration, horovod_settings
from hvd_p3.timeline_recorder import TimelineRecorder

# How gradients are reduced in this process.
NOT_NEEDED = "not needed"  # one rank
ENGINE = "engine"  # the priority queue over MPI
HOROVOD = "horovod"  # Horovod's own operations, where there is no MPI

_NOT_INITIALIZED = "hvd_p3 is not initialised; call hvd_p3.init() first."
_FORKED = (
    "this process was forked from a rank after hvd_p3.init() and cannot use hvd_p3, since the "
    "threads of the engine and of MPI stay in the parent; start processes that do so before init, "
    "or with multiprocessing's method 'spawn'."
)

# Horovod agrees on its end within this time, if all ranks answer.
_LEAST_HOROVOD_END_S = 2.0


class _HorovodEnd:
    """Calls Horovod's shutdown, which may never return, in a thread of its own.

    The thread waits from the start: Python starts none while the program exits.
    """

    def __init__(self):
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="hvd_p3 end", daemon=True)
        self._thread.start()

    def _wait(self):
        self._wanted.wait()
        horovod.shutdown()

    def run(self, timeout_s):
        """Returns whether Horovod has ended within `timeout_s` seconds; `None` is for ever."""
        self._wanted.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


class _Process:
    """What init made. One instance, `_process`, written under `_lock`."""

    def __init__(self, config, reduction, timeline=None):
        self.config = config
        self.reduction = reduction
        self.timeline = timeline  # `TimelineRecorder`, or None without the engine
        self.horovod_end = _HorovodEnd()
        self.in_contact = True  # False once the engine has ended without the other ranks


_lock = threading.Lock()
_process = None
_horovod_is_stuck = False  # its shutdown waits for ranks that do not answer
_of_parent = None
_is_forked = False  # from a process that had called init
_warned_about_gloo = False
_before_shutdown = []  # functions


def init(comm=None, process_sets=None, **settings):
    """Starts Horovod and the engine. Call once, at the start of the program, on all ranks.

    Args:
        comm: Must be `None`: hvd_p3 uses all ranks of the job. For parts of the job use
            `process_sets`.
        process_sets: As in `horovod.tensorflow.init`.
        **settings: The settings of `docs/settings.md`, for example `slice_bytes` (int, bytes) or
            `credit_bytes` (int, bytes). Each wins over its environment variable.

    Raises:
        TypeError: If an argument is no setting.
        ValueError: If a setting is out of range, `comm` is given, or ranks have different settings
            or versions of hvd_p3.
        RuntimeError: After `shutdown`, if that ended MPI, or in a process that was forked from one
            that had called `init`.

    Example:

    ```python
    import hvd_p3 as hvd
    hvd.init(slice_bytes=128 * 1024)
    print(hvd.rank(), "of", hvd.size())
    ```
    """
    global _process, _warned_about_gloo
    if comm is not None:
        raise ValueError(
            "hvd_p3.init uses all ranks of the job; leave `comm` out and use `process_sets` for "
            f"parts of it. Received: comm={comm!r}"
        )
    config = configuration.load(settings)
    if _is_forked:
        raise RuntimeError(f"hvd_p3.init cannot be called: {_FORKED}")
    with _lock:
        if _process is not None:
            if settings and config != _process.config:
                raise ValueError(
                    "hvd_p3 is initialised already with other settings; give all settings to the "
                    f"first call of init. Received: {settings}"
                )
            return
        if _engine.mpi_is_finalized():
            raise RuntimeError(
                "hvd_p3.init was called after hvd_p3.shutdown ended MPI, which a process can "
                "initialise only once. Call init and shutdown once each."
            )
        horovod_settings.pass_on(config)
        horovod.init(process_sets=process_sets)
        timeline = None
        if horovod.size() == 1:
            _engine.start_single_rank(config.slice_bytes, config.credit_bytes, config.trace)
            timeline = TimelineRecorder(0, 1, channel=None)
            reduction = NOT_NEEDED
        elif horovod.mpi_enabled():
            try:
                _engine.start_mpi(
                    config.slice_bytes,
                    config.credit_bytes,
                    config.trace,
                    _environment.horovod_sleeps,
                    config.stall_warning_s,
                    config.stall_timeout_s,
                )
            except Exception:
                # The ranks cannot talk to each other, so Horovod cannot agree on its end either.
                _leave_horovod_out_at_exit()
                raise
            timeline = TimelineRecorder(horovod.rank(), horovod.size(), _engine.MpiMessages())
            reduction = ENGINE
            if horovod.rank() == 0:
                horovod_settings.warn_of_those_without_effect()
        else:
            reduction = HOROVOD
            if horovod.rank() == 0 and not _warned_about_gloo:
                warnings.warn(
                    "Horovod runs on Gloo, so gradients go through Horovod's own operations in "
                    "immediate mode, without priorities. Launch with `horovodrun --mpi` to use "
                    "the priority queue and to record timelines.",
                    stacklevel=2,
                )
                _warned_about_gloo = True
        if horovod.size() > 1:
            # After start_mpi, which finds out first whether Horovod's collectives work at all.
            try:
                agreement.check_same_on_all_ranks(config)
            except ValueError:
                _engine.stop(config.shutdown_timeout_s)
                raise
        _process = _Process(config, reduction, timeline)
    # After Horovod's own, so that the engine stops before Horovod ends MPI.
    atexit.register(_shutdown_at_exit)
    if timeline is not None:
        timeline.start_if_set(config.timeline)


def shutdown():
    """Stops the engine and Horovod on all ranks, once what all ranks have submitted is reduced.

    What some rank has not submitted fails with an error on the others. A pending update whose
    gradient all ranks have submitted is not lost: reading the variable applies it after shutdown
    too.

    Waits up to the setting `shutdown_timeout_s` for ranks that do not shut down, not counting the
    time in which gradients are reduced. Ends MPI too, unless the program initialised MPI before
    hvd_p3, so `init` cannot follow.

    Example:

    ```python
    hvd_p3.shutdown()
    ```
    """
    global _process, _horovod_is_stuck
    with _lock:
        if _process is None:
            return
        ending = _process
        timeout_s = ending.config.shutdown_timeout_s
        # Ranks that reduce gradients end in step, and the engine tells one that does not. Others
        # may need this rank's threads for long after its end.
        ends_in_step = _engine.is_running() and _engine.statistics()["slices"] > 0
        if ends_in_step:
            ending.in_contact &= _engine.stop(timeout_s)
        while _before_shutdown:
            _before_shutdown.pop()()
        _engine.close_channels()
        if not ends_in_step:
            ending.in_contact &= _engine.stop(timeout_s)
        if ending.timeline is not None:
            # After the engine, so that ranks that wait for this one come too.
            ending.timeline.stop_at_shutdown(timeout_s)
        _process = None
        # Horovod ends with all ranks or not at all. After an error some may be out of reach.
        ended = ending.horovod_end.run(
            None if ending.in_contact else max(timeout_s, _LEAST_HOROVOD_END_S)
        )
    atexit.unregister(_shutdown_at_exit)
    if not ended:
        _horovod_is_stuck = True
        _leave_horovod_out_at_exit()


def before_shutdown(function):
    """Calls a function in the next shutdown, which waits for it; the last one first.

    For threads that use other ranks; channels are open until then.
    """
    _before_shutdown.append(function)


def _leave_horovod_out_at_exit():
    atexit.unregister(horovod.shutdown)
    atexit.register(_exit_without_horovod)


def _shutdown_at_exit():
    shutdown()
    if _horovod_is_stuck:
        _exit_without_horovod()  # what is registered while the program exits is not called


def _exit_without_horovod():
    """Ends the process here: Horovod's library would wait forever for ranks out of reach."""
    sys.stdout.flush()
    print(
        "hvd_p3: this rank ends without agreement with the others; see the error above.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


def is_initialized():
    """Returns whether `hvd_p3.init()` was called and `hvd_p3.shutdown()` was not."""
    return _process is not None


def current():
    """Returns the process's `config` and `reduction`; raises `ValueError` before init."""
    process = _process
    if process is None:
        raise ValueError(_FORKED if _is_forked else _NOT_INITIALIZED)
    return process


def _after_fork_in_child():
    """Forgets what belongs to the parent; the child may do anything but use hvd_p3."""
    global _process, _of_parent, _lock, _is_forked
    if _process is None:
        return
    _lock = threading.Lock()  # may have been held by a thread that the child does not have
    # Kept, since destructors of the parent's objects would wait for the parent's threads.
    _of_parent = _process
    _process = None
    _before_shutdown.clear()
    _is_forked = True
    _engine.abandon()
    atexit.unregister(_shutdown_at_exit)
    atexit.unregister(horovod.shutdown)


os.register_at_fork(after_in_child=_after_fork_in_child)


def rank():
    """Returns this process's number in the job, from 0 to `size() - 1`."""
    current()
    return horovod.rank()


def size():
    """Returns the number of ranks in the job."""
    current()
    return horovod.size()


def local_rank():
    """Returns this process's number on its host, from 0 to `local_size() - 1`."""
    current()
    return horovod.local_rank()


def local_size():
    """Returns the number of ranks on this host."""
    current()
    return horovod.local_size()


def cross_rank():
    """Returns the number of this host among those that have this local rank."""
    current()
    return horovod.cross_rank()


def cross_size():
    """Returns the number of hosts that have this local rank."""
    current()
    return horovod.cross_size()


def statistics():
    """Returns the engine's counters since init.

    Returns:
        A dict: `slices` and `negotiation_rounds` (counts), `bytes` (payload reduced),
        `communication_seconds` (wall time with a slice in flight), `forward_wait_seconds` (wall
        time in which a forward pass waited for a reduction), `held_bytes` (buffers of unfinished
        tensors now). All zero where the engine is not in use.

    Example:

    ```python
    before = hvd_p3.statistics()["bytes"]
    ```
    """
    current()
    if not _engine.is_running():
        names = ("slices", "bytes", "negotiation_rounds", "held_bytes")
        seconds = ("communication_seconds", "forward_wait_seconds")
        return dict.fromkeys(names, 0) | dict.fromkeys(seconds, 0.0)
    return _engine.statistics()


def take_trace():
    """Returns and clears the engine's record of events; empty unless `trace` is set.

    Returns:
        A list of dicts in the order of events: `kind` (`"submitted"`, `"queued"`, `"started"`,
        `"finished"` or `"completed"`), `time_ns` (steady clock), `tensor`, `priority`, `offset`
        (elements), `bytes` and `bytes_in_flight`.

    Example:

    ```python
    hvd_p3.init(trace=True)
    order = [event["tensor"] for event in hvd_p3.take_trace() if event["kind"] == "started"]
    ```
    """
    current()
    return _engine.take_trace() if _engine.is_running() else []
