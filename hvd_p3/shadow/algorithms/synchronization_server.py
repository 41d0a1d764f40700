"""A thread that keeps a share of the central weights of elastic averaging."""

import contextlib
import threading

import numpy as np

REQUEST_TAG = 100
REPLY_TAG = 101

_NUMBER_BYTES = 8


def numbered(number, values):
    """A message with a number, so that a reply that comes too late is not taken for another.

    Args:
        number: int.
        values: 1-D NumPy array.

    Returns:
        NumPy array of uint8.
    """
    return np.concatenate([np.array([number], np.int64).view(np.uint8), values.view(np.uint8)])


def split_number(message, dtype):
    """The (number, values) of a message of `numbered`, where values have `dtype`."""
    number = int(message[:_NUMBER_BYTES].view(np.int64)[0])
    return number, message[_NUMBER_BYTES:].view(dtype)


class SynchronizationServer:
    """Blends the weights of those who ask into its own, and returns these; one after the other.

    Runs from its making until `stop`, or until the channel is closed or fails.

    Args:
        weights: 1-D NumPy array, the first central weights; kept and changed.
        alpha: float, the share by which one request moves them.
        group: `Group`.
    """

    def __init__(self, weights, alpha, group):
        self._weights = weights
        self._alpha = alpha
        self._group = group
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._serve, name="hvd_p3 synchronisation server", daemon=True
        )
        self._thread.start()

    def weights(self):
        """A copy of the central weights."""
        with self._lock:
            return self._weights.copy()

    def stop(self):
        """Answers what has arrived, then ends."""
        # If the channel is closed or broken, the thread has seen the same.
        with contextlib.suppress(RuntimeError):
            self._group.send(self._group.rank, REQUEST_TAG, b"")
        self._thread.join()

    def _serve(self):
        try:
            while True:
                sender, _, message = self._group.receive(tag=REQUEST_TAG, timeout_s=-1)
                if message.size == 0:
                    return
                number, theirs = split_number(message, self._weights.dtype)
                with self._lock:
                    self._weights += self._alpha * (theirs - self._weights)
                    reply = numbered(number, self._weights)
                self._group.send(sender, REPLY_TAG, reply)
        except RuntimeError:
            return  # closed or broken: who asks notices that there is no answer
