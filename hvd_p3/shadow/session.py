"""Synchronisation of one training, from its start to its end."""

import contextlib
import warnings

from hvd_p3.shadow.group import Group
from hvd_p3.shadow.meter import Meter
from hvd_p3.shadow.synchronizer import Synchronizer
from hvd_p3.shadow.weights import ReplicatedWeights


class Session:
    """The parts that background and foreground have in common.

    Args:
        algorithm: `Algorithm`.
        variables: List of variables to synchronise.
        channel: `Channel`.
        number: int, of the session on this channel.
        timeout_s: float, seconds.
        predecessor: Optional `Session` on the same channel that has ended with a report; those who
            have taken part to its end do so again.
        watch: Optional object with methods `has_left`, whether what trains has ended without saying
            so, and `stop`.
    """

    def __init__(
        self, algorithm, variables, channel, number, timeout_s, predecessor=None, watch=None
    ):
        self._channel = channel
        self._watch = watch
        before = predecessor and predecessor._group
        self._group = (
            Group(channel, timeout_s, before.ranks, before.generation)
            if before
            else Group(channel, timeout_s)
        )
        self._weights = ReplicatedWeights(variables)
        self._meter = Meter()
        self._synchronizer = Synchronizer(
            algorithm, self._weights, self._group, number, self._meter
        )
        self.error = None
        self.report = None

    def start(self):
        """Gives all ranks the same weights. All ranks call it."""
        try:
            self._synchronizer.start()
        except BaseException:
            self._synchronizer.stop()
            raise

    def step(self, examples=0, iterations=1):
        """Counts what was trained; in the foreground, may synchronise.

        Any thread may call, one at a time.

        Args:
            examples: int, the number of examples in all the iterations together.
            iterations: int.
        """
        self._meter.trained(iterations, examples)

    def end(self):
        """Leaves all ranks with the same weights; waits until all have finished training."""
        raise NotImplementedError

    def abort(self):
        """Ends without the other ranks."""
        raise NotImplementedError

    @property
    def may_begin_anew(self):
        """Whether some ranks were lost on the way, and all of them have said that they may come to
        another session, on another channel. The same on all ranks with a report."""
        lost = set(range(self._channel.size)) - set(self._group.ranks)
        return bool(lost) and lost <= self._synchronizer.returning

    def counts(self):
        """Returns the `Counts` of this rank so far."""
        return self._meter.counts()

    def paused(self, writes=True):
        """A context in which synchronisation leaves the variables alone.

        For what must see or set all variables at one time. Model methods that save or load do it
        themselves during a callback's training.

        Args:
            writes: bool, whether variables may be set in it. Then a synchronisation that is under
                way, and was computed from their values before, is dropped.
        """
        return self._weights.paused(writes)

    def _close(self, returns=True):
        self._leave(returns)
        self._channel.close()

    def _leave(self, returns=True):
        with contextlib.suppress(RuntimeError):  # then there is no way to tell them
            self._synchronizer.leave(returns)

    def _end_watch(self):
        if self._watch is not None:
            self._watch.stop()

    def _has_failed(self, error):
        """Training goes on after an error; says so."""
        self.error = error
        self._leave()
        warnings.warn(
            f"hvd_p3.shadow on rank {self._channel.rank}: this rank goes on without "
            f"synchronisation, so its weights will differ from those of other ranks: {error}",
            stacklevel=2,
        )
