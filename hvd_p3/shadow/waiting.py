"""Says for which ranks this one waits at the end of its training."""

import time

from hvd_p3.shadow.group import names_of

_FIRST_S = 60.0


class WaitingNotice:
    """Says it after a minute, then after twice as long as the last time. For one thread at a time.

    Args:
        warn: Function of a str.
    """

    def __init__(self, warn):
        self._warn = warn
        self._start = time.monotonic()
        self._next_s = _FIRST_S

    def waits_for(self, ranks):
        """Call it often.

        Args:
            ranks: List of int.
        """
        waited_s = time.monotonic() - self._start
        if ranks and waited_s >= self._next_s:
            self._next_s = 2 * waited_s
            verb = "trains" if len(ranks) == 1 else "train"
            self._warn(
                f"has finished training, and has waited {waited_s:.0f} s for {names_of(ranks)}, "
                f"which still {verb}"
            )
