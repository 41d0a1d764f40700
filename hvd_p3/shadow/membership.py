"""Who takes part in synchronisation: ranks meet, and agree on who is left.

To a meeting, each rank sends the leader a message; when all have come, it answers all with a
verdict. A rank that has not been heard of for the time limit is given up: the others go on without
it. If the leader was given up, the next one leads, and what was done after the last meeting counts
as failed, since its verdict may have reached only some ranks.
"""

from hvd_p3.shadow.group import MEETING_TAG, VERDICT_TAG, names_of
from hvd_p3.shadow.liveness import Liveness, SynchronizationError

__all__ = ["Membership", "SynchronizationError", "Verdict"]

# While a rank waits for an all-reduce, up to the time limit, it sends no signs of life.
_LIMITS_UNTIL_GONE = 2
_NUMBERS_IN_SESSION = 2**32  # of meetings


class Verdict:
    """What a meeting has found.

    Args:
        finished: bool, whether all ranks have finished training.
        training: List of int, the ranks that have not.
        gone: List of int, the ranks that were given up.
        failed: bool, whether what some rank did after the last meeting has failed.
        failures: int, how many meetings in a row have found that something has failed, though no
            rank was gone.
    """

    def __init__(self, finished, training, gone, failed, failures):
        self.finished = finished
        self.training = training
        self.gone = gone
        self.failed = failed
        self.failures = failures


class Membership:
    """The meetings of one group. For one thread at a time, but `leave` is for any.

    Args:
        group: `Group`; ranks that are given up leave it.
        session: int, the same on all ranks; messages of other sessions are ignored.
    """

    def __init__(self, group, session):
        self._group = group
        self._session = session
        self._limit_s = _LIMITS_UNTIL_GONE * group.timeout_s
        self._alive = Liveness(group, session, self._limit_s)
        self._number = 0
        self._failures = 0

    def show_life(self, give_up=False):
        """Tells the leader, or if this is the leader all others, that this rank is alive. Call it
        often: most calls do nothing.

        Args:
            give_up: bool, whether to give up ranks that are silent. For ranks that meet only at the
                end; others find out in the next meeting.

        Returns:
            List of int, the ranks that have been given up since the last time.

        Raises:
            SynchronizationError: If this rank was given up by the others.
        """
        self._alive.show(give_up)
        gone = [rank for rank in self._group.ranks if rank not in self._alive.ranks]
        if give_up and gone:
            self._group.keep(self._alive.ranks)
            return gone
        return []

    def leave(self, returns=False):
        """Tells the others not to wait for this rank, which will come to no meeting any more.

        Args:
            returns: bool, whether it may come to another session.
        """
        self._alive.leave(returns)

    @property
    def left(self):
        """Set of int, the ranks that are gone because they have left."""
        return self._alive.left

    @property
    def returning(self):
        """Set of int, those of them that may come to another session."""
        return self._alive.returning

    def meet(
        self,
        finished=False,
        failed=False,
        signature=None,
        limit_s=None,
        needs_leader=False,
        waits_for=lambda ranks: None,
    ):
        """Waits until all ranks that are alive have come to the same meeting.

        Args:
            finished: bool, whether this rank has finished training.
            failed: bool, whether what it did after the last meeting has failed.
            signature: Optional list of str that must be the same on all ranks. A meeting with it is
                the first: no rank may be missing.
            limit_s: float, seconds after which a rank is given up; `None` is twice the group's.
            needs_leader: bool, whether to raise an error if the leader is gone, rather than to go
                on with the next one.
            waits_for: Function of a list of int, called now and then while some ranks have not
                come, with these.

        Returns:
            A `Verdict`, the same on all ranks.

        Raises:
            SynchronizationError: If this rank was given up by the others, or the leader is gone.
            ValueError: If signatures differ.
            TimeoutError: If a rank did not come to the first meeting.
        """
        self._number += 1
        limit_s = self._limit_s if limit_s is None else limit_s
        is_first = signature is not None
        mine = {
            "number": self._number,
            "finished": finished,
            "failed": failed,
            "signature": signature,
        }
        verdict = None
        while verdict is None:
            leader = self._alive.leader
            if self._alive.leads:
                verdict = self._lead(mine, limit_s, is_first, waits_for)
            else:
                verdict = self._follow(mine, limit_s, waits_for)
            if verdict is None and (needs_leader or is_first):
                raise (TimeoutError if is_first else SynchronizationError)(
                    f"rank {leader}, where ranks meet, has ended synchronisation; see the message "
                    "of that rank"
                    if leader in self.left
                    else f"rank {leader}, where ranks meet, was not heard of for {limit_s:g} s"
                )
        if verdict["missing"]:
            raise TimeoutError(
                f"{names_of(verdict['missing'])} did not come to the start of training within "
                f"{limit_s:g} s. Start it on all ranks"
            )
        if verdict["error"]:
            raise ValueError(verdict["error"])
        self._number = verdict["number"]
        self._failures = verdict["failures"]
        self._alive.ranks = verdict["ranks"]
        self._alive.left = set(verdict["left"])
        self._alive.returning = set(verdict["returning"])
        gone = [rank for rank in self._group.ranks if rank not in verdict["ranks"]]
        self._group.agree(verdict["ranks"], verdict["generation"])
        return Verdict(
            verdict["finished"], verdict["training"], gone, verdict["failed"], self._failures
        )

    def _lead(self, mine, limit_s, is_first, waits_for):
        alive = self._alive
        invited = alive.ranks
        arrived = {self._group.rank: mine}
        alive.excuse(limit_s)
        while missing := [rank for rank in alive.ranks if rank not in arrived]:
            sender, message = alive.hear()
            # Those that turn to a new leader may be one meeting ahead of it, or behind.
            if message.get("number") == self._number or (alive.takes_over and "number" in message):
                arrived[sender] = message
            alive.drop_silent(limit_s)  # also ranks that had come
            if alive.sign_is_due():
                alive.send_signs(missing)
                waits_for(missing)
        came = {rank: arrived[rank] for rank in alive.ranks}
        verdict = self._verdict(came, [rank for rank in invited if is_first and rank not in came])
        for rank in alive.ranks[1:]:
            alive.send(rank, VERDICT_TAG, verdict)
        alive.takes_over = False
        return verdict

    def _verdict(self, came, missing):
        ranks = list(came)
        number = max(each["number"] for each in came.values())
        failed = self._alive.takes_over or any(each["failed"] for each in came.values())
        are_fewer = ranks != self._group.agreed_ranks
        generation = self._group.generation
        if failed or are_fewer:  # then sums begin afresh
            generation = _NUMBERS_IN_SESSION * self._session + number
        return {
            "number": number,
            "ranks": ranks,
            "generation": generation,
            "finished": all(each["finished"] for each in came.values()),
            "training": [rank for rank, each in came.items() if not each["finished"]],
            "failed": failed,
            "failures": self._failures + 1 if failed and not are_fewer else 0,
            "left": sorted(self.left),
            "returning": sorted(self.returning),
            "missing": missing,
            "error": _difference({rank: each["signature"] for rank, each in came.items()}),
        }

    def _follow(self, mine, limit_s, waits_for):
        """The verdict, or None if the leader was given up."""
        alive = self._alive
        leader = alive.leader
        alive.send(leader, MEETING_TAG, mine)
        alive.wait_for_leader()
        while True:
            message = alive.hear_leader(alive.sign_s) or {}
            if message.get("number", 0) >= self._number:
                return message
            # The leader may have said so before it has heard of this rank.
            missing = [rank for rank in message.get("missing", []) if rank != self._group.rank]
            if missing:
                waits_for(missing)
            alive.drop_silent(limit_s)
            if alive.leader != leader:
                return None
            if alive.sign_is_due():
                alive.send_signs()


def _difference(signatures):
    """Names the first difference between the signatures of ranks; "" if there is none."""
    (first, expected), *others = sorted(signatures.items())
    for rank, actual in others:
        if actual == expected:
            continue
        if len(actual) != len(expected):
            return (
                f"ranks synchronise different variables: {len(expected)} on rank {first}, "
                f"{len(actual)} on rank {rank}. Build the same model on all ranks"
            )
        for one, other in zip(expected, actual, strict=True):
            if one != other:
                return (
                    f"ranks synchronise different variables: {one} on rank {first}, {other} on "
                    f"rank {rank}. Build the same model on all ranks"
                )
    return ""
