"""Synchronisation in a thread of its own: the shadow thread."""

import atexit
import threading
import weakref

from hvd_p3.shadow.session import Session

_END_S = 5.0
_running = weakref.WeakSet()


class BackgroundSession(Session):
    """Synchronises over and over while others train.

    Args:
        interval_s: float, seconds of rest between two synchronisations.
        others: See `Session`.
    """

    def __init__(self, *others, interval_s):
        super().__init__(*others)
        self._interval_s = interval_s
        self._finished = threading.Event()
        self._aborted = False
        self._thread = threading.Thread(target=self._run, name="hvd_p3 shadow", daemon=True)

    def start(self):
        super().start()
        _running.add(self)
        self._thread.start()

    def end(self):
        self._meter.stop()
        self._finished.set()
        self._thread.join()

    def abort(self):
        self._aborted = True
        self._close()
        self._finished.set()
        self._thread.join()

    def _run(self):
        try:
            while not self._finished.is_set():
                self._synchronizer.synchronize()
                self._finished.wait(self._interval_s)
            self.report = self._synchronizer.finish(self._interval_s)
        except Exception as error:
            if not self._aborted:
                self._has_failed(error)
        finally:
            self._synchronizer.stop()


@atexit.register
def _end_threads():
    """Python takes away what threads need while they run."""
    for session in list(_running):
        if session._thread.is_alive():
            session._aborted = True
            session._close()
            session._finished.set()
            session._thread.join(_END_S)
