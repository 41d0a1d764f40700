"""One rank's part in synchronisation, step by step; in which thread is for others to say."""

import time

import numpy as np

from hvd_p3.shadow.group import Group
from hvd_p3.shadow.membership import Membership, SynchronizationError
from hvd_p3.shadow.meter import Report

# Ranks come to the start of training at different times: they read data and trace.
_START_S = 600.0


class Synchronizer:
    """Runs an algorithm on the weights of one rank. For one thread at a time.

    `start`, `synchronize` any number of times, and `finish`; or `leave` after an error. `stop` is
    last. All ranks call `start` and `finish`. With a collective algorithm, a rank that has finished
    training goes on to synchronise in `finish` until all have.

    Args:
        algorithm: `Algorithm`.
        weights: `ReplicatedWeights`.
        channel: `Channel`, for this synchroniser alone.
        session: int, the same on all ranks, and another one for each user of the channel.
        timeout_s: float, seconds after which a rank that does not answer counts as gone.
        meter: `Meter`.
    """

    def __init__(self, algorithm, weights, channel, session, timeout_s, meter):
        self._algorithm = algorithm
        self._weights = weights
        self._group = Group(channel, timeout_s)
        self._group.bounded = weights.bounded
        self._membership = Membership(self._group, session)
        self._meter = meter
        self._failed = False  # a sum, since the last meeting

    def start(self):
        """Gives all ranks the weights of the first."""
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
            self._meet_and_blend(finished=False)
        else:
            self._membership.show_life()
            self._blend()

    def finish(self, interval_s):
        """Leaves all ranks with the same weights, once all have finished training.

        Args:
            interval_s: float, seconds between two synchronisations for ranks that still train.

        Returns:
            A `Report` of all ranks.
        """
        if self._algorithm.collective:
            while not self._meet_and_blend(finished=True):
                time.sleep(interval_s)
        else:
            self._blend()
            self._note_gone(self._membership.meet(finished=True))
        while True:
            final, report = self._try_to_end()
            if final is not None:
                self._weights.assign(final)
            try:
                verdict = self._membership.meet(finished=True, failed=final is None)
            except RuntimeError:
                # A rank that knows the outcome may end its program, and MPI, before this one knows.
                if final is not None:
                    return report
                raise
            self._note_gone(verdict)
            if not verdict.failed:
                return report

    def show_life(self):
        """Lets other ranks know that this one is alive, if it is long between synchronisations."""
        self._membership.show_life()

    def leave(self):
        """Tells other ranks not to wait for this one."""
        self._membership.leave()

    def stop(self):
        """Ends what the algorithm has started."""
        self._algorithm.stop()

    def _meet_and_blend(self, finished):
        """Returns whether all ranks have finished training; blends if not."""
        verdict = self._membership.meet(finished=finished, failed=self._failed)
        self._failed = False
        try:
            self._note_gone(verdict)
            if verdict.finished:
                return True
            self._blend()
        except TimeoutError:
            self._failed = True  # the next meeting finds out who is gone
        return False

    def _note_gone(self, verdict):
        if verdict.gone:
            names = ", ".join(map(str, verdict.gone))
            self._group.warn(
                f"{'rank' if len(verdict.gone) == 1 else 'ranks'} {names} did not answer and was "
                f"given up; {self._group.size} ranks go on"
            )
            self._algorithm.ranks_changed(self._group)
        elif verdict.failed:
            raise SynchronizationError(
                f"a synchronisation took longer than {self._group.timeout_s:g} s, though all ranks "
                "answer; raise timeout_s"
            )

    def _blend(self):
        vector, ticket = self._weights.read()
        target = self._algorithm.synchronize(vector, self._group)
        if self._weights.blend(vector, target, self._algorithm.alpha, ticket):
            self._meter.synchronized()

    def _try_to_end(self):
        """Returns (final weights, report), or (None, None) if a rank did not come."""
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
