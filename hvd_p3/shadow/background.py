"""Synchronisation in a thread of its own: the shadow thread."""

import atexit
import threading
import time
import weakref

from hvd_p3.shadow.membership import SynchronizationError
from hvd_p3.shadow.session import Session

_END_S = 5.0
_LOOK_S = 1.0  # between two looks around while it rests
_running = weakref.WeakSet()


class BackgroundSession(Session):
    """Synchronises over and over while others train.

    Args:
        interval_s: float, seconds of rest between two synchronisations.
        others, more: See `Session`.
    """

    def __init__(self, *others, interval_s, **more):
        super().__init__(*others, **more)
        self._interval_s = interval_s
        self._look_s = min(_LOOK_S, self._group.timeout_s / 10)
        self._finished = threading.Event()
        self._aborted = False
        self._thread = threading.Thread(target=self._run, name="hvd_p3 shadow", daemon=True)

    def start(self):
        super().start()
        _running.add(self)
        self._thread.start()

    def end(self):
        self._meter.stop()
        self._end_watch()
        self._finished.set()
        self._thread.join()

    def abort(self):
        self._aborted = True
        self._end_watch()
        self._close()
        self._finished.set()
        self._thread.join()

    def _run(self):
        try:
            while not self._finished.is_set():
                if self._training_has_left():
                    self.error = SynchronizationError(
                        "training on this rank has ended with an exception"
                    )
                    self._leave()
                    return
                self._synchronizer.synchronize()
                self._rest()
            self.report = self._synchronizer.finish()
        except Exception as error:
            if not self._aborted:
                self._has_failed(error)
        finally:
            self._synchronizer.stop()

    def _training_has_left(self):
        return self._watch is not None and self._watch.has_left()

    def _rest(self):
        """Rests, with signs of life, until the next synchronisation or the end of training."""
        end = time.monotonic() + self._interval_s
        while not self._finished.wait(max(0.0, min(self._look_s, end - time.monotonic()))):
            if time.monotonic() >= end or self._training_has_left():
                return
            self._synchronizer.show_life()


@atexit.register
def _end_threads():
    """Python takes away what threads need while they run."""
    for session in list(_running):
        if session._thread.is_alive():
            session._aborted = True
            session._close(returns=False)
            session._finished.set()
            session._thread.join(_END_S)
