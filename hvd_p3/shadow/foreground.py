"""Synchronisation every k iterations, in the thread that trains: the baseline of ShadowSync."""

from hvd_p3.shadow.session import Session


class ForegroundSession(Session):
    """Synchronises every `every` iterations; training waits for it.

    Args:
        every: int, iterations between two synchronisations.
        others, more: See `Session`.
    """

    def __init__(self, *others, every, **more):
        super().__init__(*others, **more)
        self._every = every
        self._since_last = 0

    def step(self, examples=0, iterations=1):
        super().step(examples, iterations)
        self._since_last += iterations
        if self.error is None:
            self._try(self._synchronize_if_due)

    def end(self):
        self._meter.stop()
        if self.error is None:
            self._try(self._finish)
        self._synchronizer.stop()

    def abort(self):
        self._close()
        self._synchronizer.stop()

    def _synchronize_if_due(self):
        if self._since_last >= self._every:
            self._since_last = 0
            self._synchronizer.synchronize()
        else:
            self._synchronizer.show_life()

    def _finish(self):
        self.report = self._synchronizer.finish()

    def _try(self, action):
        try:
            action()
        except Exception as error:
            self._has_failed(error)
