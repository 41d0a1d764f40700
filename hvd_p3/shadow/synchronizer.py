"""One rank's part in synchronisation, step by step; in which thread is for others to say."""

import numpy as np

from hvd_p3.shadow.group import names_of
from hvd_p3.shadow.membership import Membership, SynchronizationError
from hvd_p3.shadow.meter import Report
from hvd_p3.shadow.waiting import WaitingNotice

# Ranks come to the start of training at different times: they read data and trace.
_START_S = 600.0
_TRIES = 3


class Synchronizer:
    """Runs an algorithm on the weights of one rank. For one thread at a time, but `leave` is for
    any.

    `start`, `synchronize` any number of times, and `finish`; or `leave` after an error. `stop` is
    last. All ranks call `start` and `finish`. With a collective algorithm, a rank that has finished
    training goes on to synchronise in `finish` until all have.

    Args:
        algorithm: `Algorithm`.
        weights: `ReplicatedWeights`.
        group: `Group`, for this synchroniser alone.
        session: int, the same on all ranks, and another one for each user of the channel.
        meter: `Meter`.
    """

    def __init__(self, algorithm, weights, group, session, meter):
        self._algorithm = algorithm
        self._weights = weights
        self._group = group
        self._group.bounded = weights.bounded
        self._membership = Membership(self._group, session)
        self._meter = meter
        self._failed = False  # a sum, since the last meeting

    @property
    def returning(self):
        """Set of int, the ranks that have left, but may come to another session."""
        return self._membership.returning

    def start(self):
        """Gives all ranks the weights of the first.

        Raises:
            TimeoutError: If a rank does not come.
            ValueError: If ranks have different weights.
        """
        self._membership.meet(signature=self._weights.signature, limit_s=_START_S)
        vector, _ = self._weights.read()
        vector = self._group.broadcast(vector)
        self._weights.assign(vector)
        self._algorithm.start(vector, self._group)

    def synchronize(self):
        """Synchronises once.

        Raises:
            SynchronizationError, RuntimeError: If this rank cannot synchronise any more.
        """
        if self._algorithm.collective:
            self._meet_and_blend()
        else:
            self.show_life()
            self._blend()

    def finish(self):
        """Leaves all ranks with the same weights, once all have finished training.

        Returns:
            A `Report` of all ranks.
        """
        waits_for = WaitingNotice(self._group.warn).waits_for
        if self._algorithm.collective:
            # Without a rest: ranks that still train say when the next meeting is.
            while not self._meet_and_blend(finished=True, waits_for=waits_for):
                pass
        else:
            self._blend()
            self._meet(finished=True, waits_for=waits_for)
        while True:
            final, report = self._try_to_end()
            if final is not None:
                self._weights.assign(final)
            try:
                verdict = self._membership.meet(
                    finished=True, failed=final is None, needs_leader=final is not None
                )
            except RuntimeError:
                # A rank that knows the outcome may end its program, and MPI, before this one knows.
                if final is not None:
                    return report
                raise
            self._failed = False
            if not verdict.failed:
                self._say_who_is_gone(verdict.gone)
                return report
            self._take(verdict)

    def show_life(self):
        """Lets other ranks know that this one is alive, if it is long between synchronisations.
        With an algorithm that is not collective, gives up those that are not."""
        gone = self._membership.show_life(give_up=not self._algorithm.collective)
        if gone:
            self._say_who_is_gone(gone)
            self._algorithm.ranks_changed(self._group)

    def leave(self, returns=False):
        """Tells other ranks not to wait for this one.

        Args:
            returns: bool, whether this rank may come to another session.
        """
        self._membership.leave(returns)

    def stop(self):
        """Ends what the algorithm has started."""
        self._algorithm.stop()

    def _meet_and_blend(self, finished=False, waits_for=lambda ranks: None):
        """Returns whether all ranks have finished training; blends if not."""
        verdict = self._meet(finished, waits_for)
        if verdict.finished:
            return True
        waits_for(verdict.training)
        if not self._failed:
            try:
                self._blend()
            except TimeoutError:
                self._failed = True  # the next meeting finds out who is gone
        return False

    def _meet(self, finished, waits_for):
        verdict = self._membership.meet(finished=finished, failed=self._failed, waits_for=waits_for)
        self._failed = False
        self._take(verdict)
        return verdict

    def _take(self, verdict):
        """Does what all ranks do after a meeting has found a failure or missed ranks."""
        self._say_who_is_gone(verdict.gone)
        if verdict.failures == _TRIES:
            raise SynchronizationError(
                f"{_TRIES} synchronisations in a row took longer than {self._group.timeout_s:g} s, "
                "though all ranks answer; raise timeout_s"
            )
        if verdict.failures == 1:
            self._group.warn(
                f"a synchronisation took longer than {self._group.timeout_s:g} s on some rank, "
                "though all ranks answer; they try again"
            )
        if verdict.gone or verdict.failed:
            try:
                self._algorithm.ranks_changed(self._group)
            except TimeoutError:
                self._failed = True

    def _say_who_is_gone(self, gone):
        left = [rank for rank in gone if rank in self._membership.left]
        silent = [rank for rank in gone if rank not in self._membership.left]
        go_on = f"{self._group.size} {'rank goes' if self._group.size == 1 else 'ranks go'} on"
        if left:
            have = "has" if len(left) == 1 else "have"
            self._group.warn(f"{names_of(left)} {have} ended synchronisation; {go_on}")
        if silent:
            were = "was" if len(silent) == 1 else "were"
            self._group.warn(f"{names_of(silent)} did not answer and {were} given up; {go_on}")

    def _blend(self):
        vector, ticket = self._weights.read()
        target = self._algorithm.synchronize(vector, self._group)
        if self._weights.blend(vector, target, self._algorithm.alpha, ticket):
            self._meter.synchronized()

    def _try_to_end(self):
        """Returns (final weights, report), or (None, None) if a rank did not come."""
        if self._failed:  # then no sum is possible before the next meeting
            return None, None
        vector, _ = self._weights.read()
        try:
            final = self._group.broadcast(self._algorithm.finish(vector, self._group))
            counts = self._meter.counts()
            totals = self._group.sum(
                np.array(
                    [
                        counts.examples_per_s,
                        counts.iterations_per_s,
                        counts.synchronizations_per_min,
                        counts.iterations,
                        counts.synchronizations,
                    ]
                )
            )
        except TimeoutError:
            return None, None
        return final, Report(self._group.ranks, *totals.tolist())
