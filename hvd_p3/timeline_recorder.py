"""Records timelines: all ranks record, rank 0 writes one file."""

import contextlib
import os
import pickle
import socket
import time
import warnings

import numpy as np

from hvd_p3 import _engine, clock
from hvd_p3._build_info import HVD_P3_VERSION
from hvd_p3_tools.timeline import chrome_trace, records
from hvd_p3_tools.timeline.model import Rank, Timeline

# How long ranks wait for each other. A rank that comes to `start` or `stop` late may be training.
MEETING_S = 60.0
# For an answer, or the events of another rank, once all have met: then a rank only is so late if it
# has failed, and the launcher ends the others.
_ANSWER_S = 60.0
# For messages so short that they need no receiver to be on their way.
_SHORT_S = 1.0


class TimelineRecorder:
    """Starts and stops the recording of one process; not thread-safe.

    Every meeting of the ranks has a number, which is the tag of its messages. So a message that
    came too late for one is no part of the next.

    Args:
        rank: int.
        size: int, number of ranks.
        channel: `_engine.MpiMessages`, or None on one rank.
    """

    def __init__(self, rank, size, channel):
        self._rank = rank
        self._size = size
        self._channel = channel
        self._meetings = 0
        self._recording = None
        self._path = None
        self._settings = {}
        self._offsets = []  # on rank 0: of each rank, at the start
        self._offset = clock.SAME  # of this rank, at the start
        self._origin = 0  # when rank 0 started, on its clock: 0 in the timeline
        self._start = 0
        self._start_since_epoch = 0.0

    @property
    def is_recording(self):
        return self._recording is not None

    def start_if_set(self, path):
        """Starts on all ranks if the setting `timeline` of rank 0 is not empty.

        Args:
            path: str, the setting of this rank.
        """
        wanted = self._meet(lambda: {"path": path}, MEETING_S)["path"]
        if wanted:
            self.start(wanted, mark_cycles=False)
        elif path:
            warnings.warn(
                "HVD_P3_TIMELINE is set on this rank but not on rank 0, which writes the file, so "
                "there is no timeline. Set it on all ranks (with mpirun: -x HVD_P3_TIMELINE).",
                stacklevel=3,
            )

    def start(self, path, mark_cycles):
        """See `hvd_p3.start_timeline`."""
        if self.is_recording:
            raise RuntimeError(
                "A timeline is being recorded already; call hvd_p3.stop_timeline() first."
            )
        answer = self._meet(
            lambda: {
                "path": path,
                "mark_cycles": mark_cycles,
                "error": _why_not_writable(path),
            },
            MEETING_S,
        )
        if answer["error"]:
            raise OSError(f"Rank 0 cannot write the timeline {answer['path']}: {answer['error']}")
        self._path = os.path.abspath(answer["path"])
        with contextlib.suppress(OSError):
            os.remove(self._part())  # of an earlier recording
        self._offsets = self._measure_clocks()
        self._tell_start()
        settings = _engine.current_settings()
        self._settings = {name: settings[name] for name in ("slice_bytes", "credit_bytes")}
        self._start = self._origin if self._rank == 0 else time.monotonic_ns()
        self._recording = _engine.Recording(answer["mark_cycles"])

    def stop(self, timeout_s):
        """See `hvd_p3.stop_timeline`."""
        if not self.is_recording:
            raise RuntimeError(
                "No timeline is being recorded; call hvd_p3.start_timeline(file_path) first."
            )
        recording, self._recording = self._recording, None
        recording.stop()
        mine = recording.take() | {
            "start": self._start,
            "end": time.monotonic_ns(),
            "host": socket.gethostname(),
        }
        try:
            gathered = self._gather(mine, timeout_s)
        except RuntimeError as error:
            path = self._part()
            warnings.warn(
                f"The timeline could not be gathered on rank 0 ({error}). Rank {self._rank} writes "
                f"its own part to {path}. `hvd-p3 timeline {self._path}` reads the parts of all "
                "ranks, if they are in one folder.",
                stacklevel=3,
            )
            # How far the clocks have drifted apart since then is unknown.
            self._write({self._rank: (mine, self._offset, self._offset)}, path)
        else:
            if gathered is not None:
                self._write(gathered, self._path)

    def stop_at_shutdown(self, timeout_s):
        """Stops if a timeline is being recorded; warns instead of failing.

        Args:
            timeout_s: float, how long to wait for other ranks.
        """
        if not self.is_recording:
            return
        try:
            self.stop(timeout_s)
        except OSError as error:
            warnings.warn(f"The timeline could not be written: {error}", stacklevel=2)

    def _meet(self, decide, timeout_s):
        """Waits for all ranks.

        Args:
            decide: Function that returns rank 0's answer to all, a dict.
            timeout_s: float.

        Returns:
            Rank 0's answer, on all ranks.

        Raises:
            RuntimeError: On all ranks that came, if some rank did not come in time.
        """
        self._meetings += 1
        tag = self._meetings
        if self._rank != 0:
            self._channel.send(0, b"", tag, timeout_s)
            # Rank 0 may come as late as this rank may, and then wait as long for another.
            answer = pickle.loads(self._channel.receive(0, tag, 2 * timeout_s + 1))
        else:
            answer = decide() | {"missing": self._missing(tag, timeout_s)}
            for rank in range(1, self._size):
                with contextlib.suppress(RuntimeError):  # that rank is missing too
                    self._channel.send(rank, pickle.dumps(answer), tag, _SHORT_S)
        if answer["missing"]:
            ranks = ", ".join(map(str, answer["missing"]))
            raise RuntimeError(
                f"all ranks must start and stop a timeline together, but rank {ranks} did not come "
                f"within {timeout_s:g} s of the others"
            )
        return answer

    def _missing(self, tag, timeout_s):
        """On rank 0: the ranks that do not come in time."""
        end = time.monotonic() + timeout_s
        missing = []
        for rank in range(1, self._size):
            try:
                self._channel.receive(rank, tag, max(0.0, end - time.monotonic()))
            except RuntimeError:
                missing.append(rank)
        return missing

    def _measure_clocks(self):
        """Returns, on rank 0, the `clock.Offset` of each rank."""
        if self._rank != 0:
            clock.answer(self._channel, self._meetings, _ANSWER_S)
            return []
        others = range(1, self._size)
        return [clock.SAME] + [
            clock.measure(self._channel, rank, self._meetings, _ANSWER_S) for rank in others
        ]

    def _tell_start(self):
        """Rank 0 tells the others what they need to write a part of their own."""
        if self._rank != 0:
            told = self._channel.receive(0, self._meetings, _ANSWER_S)
            self._offset, self._origin, self._start_since_epoch = pickle.loads(told)
            return
        self._origin, self._start_since_epoch = time.monotonic_ns(), time.time()
        for rank in range(1, self._size):
            told = self._offsets[rank], self._origin, self._start_since_epoch
            self._channel.send(rank, pickle.dumps(told), self._meetings, _ANSWER_S)

    def _part(self):
        """Where this rank writes its own part."""
        return f"{self._path}.rank{self._rank}"

    def _gather(self, mine, timeout_s):
        """Returns, on rank 0, dict of rank to (what it recorded, offset at start, at end)."""
        self._meet(dict, timeout_s)
        tag = self._meetings
        if self._rank != 0:
            clock.answer(self._channel, tag, _ANSWER_S)
            self._channel.send(0, pickle.dumps(mine), tag, _ANSWER_S)
            # At the end of a program the first rank that goes on ends MPI for all.
            with contextlib.suppress(RuntimeError):
                self._channel.receive(0, tag, self._size * _ANSWER_S)
            return None
        gathered = {0: (mine, clock.SAME, clock.SAME)}
        for rank in range(1, self._size):
            try:
                offset = clock.measure(self._channel, rank, tag, _ANSWER_S)
                taken = pickle.loads(self._channel.receive(rank, tag, _ANSWER_S))
            except RuntimeError as error:
                warnings.warn(f"The timeline lacks rank {rank}: {error}.", stacklevel=4)
            else:
                gathered[rank] = taken, self._offsets[rank], offset
        for rank in gathered:
            if rank != 0:
                with contextlib.suppress(RuntimeError):
                    self._channel.send(rank, b"", tag, _SHORT_S)
        return gathered

    def _write(self, gathered, path):
        names = records.labels(
            (group, name)
            for taken, _, _ in gathered.values()
            for _, group, name, _ in taken["tensors"]
        )
        ranks = [
            _rank_of(number, *gathered[number], self._origin, names) for number in sorted(gathered)
        ]
        timeline = Timeline(ranks, self._settings, HVD_P3_VERSION, self._start_since_epoch)
        with open(path, "w", encoding="utf-8") as file:
            chrome_trace.write(timeline, file)


def _why_not_writable(path):
    """Makes the file empty; returns why it cannot, or ""."""
    try:
        with open(path, "w", encoding="utf-8"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _rank_of(number, taken, start, end, origin, names):
    """Makes a `model.Rank` of what a rank recorded.

    Args:
        number: int.
        taken: dict, see `TimelineRecorder.stop`.
        start, end: `clock.Offset` of the rank.
        origin: int, the time on rank 0's clock that is 0 in the timeline.
        names: dict of (group, name) to str.
    """
    events = taken["records"]  # in the order of time
    limits = np.array([taken["start"], taken["end"]])
    times = clock.to_rank_0(np.concatenate([limits, events["time_ns"]]), start, end) - origin
    rank = Rank(number, taken["host"], int(times[0]), int(times[1]))
    rank.dropped = taken["dropped"]
    rank.clock_error = max(start.error, end.error)
    tensors = {
        handle: (names[group, name], priority) for handle, group, name, priority in taken["tensors"]
    }
    builder = records.RankBuilder(rank, tensors)
    columns = [
        events[name].tolist()
        for name in ("kind", "tensor", "slice", "offset", "bytes", "bytes_in_flight")
    ]
    kinds = _engine.RECORD_KINDS
    for kind, time_ns, *others in zip(columns[0], times[2:].tolist(), *columns[1:], strict=True):
        builder.add(kinds[kind], time_ns, *others)
    builder.end()
    return rank
