"""Whether a call of `model.fit` is still running: Keras tells callbacks of its end only if it ends
without an exception."""

import inspect
import sys
import threading

import keras

_FIT = inspect.unwrap(keras.Model.fit).__code__


class FitWatch:
    """Watches the call of `model.fit` from within which it is made; other callers, not.

    Made in the thread that trains; any other thread may ask, one at a time.
    """

    def __init__(self):
        self._thread = threading.get_ident()
        self._frame = next((each for each in _stack(sys._getframe()) if each.f_code is _FIT), None)
        self._has_left = False

    def has_left(self):
        """Returns whether the call has ended; False after `stop`."""
        frame = self._frame  # `stop` may be called meanwhile
        # Twice, since the stack may change while one walks on it.
        if frame is not None and not self._is_running(frame) and not self._is_running(frame):
            self._has_left = True
            self._frame = None  # a frame keeps all that the call had
        return self._has_left

    def _is_running(self, frame):
        return any(each is frame for each in _stack(sys._current_frames().get(self._thread)))

    def stop(self):
        """Lets go of the call, which nobody watches any more. In the thread that trains."""
        self._frame = None


def _stack(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back
