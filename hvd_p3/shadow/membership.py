"""Who takes part in synchronisation: ranks meet, and those that are gone are noticed.

The first rank leads. To a meeting, each rank sends it a message; when all have come, it answers all
with a verdict. A rank that has not been heard of for the time limit is given up: the others go on
without it. Ranks that do not meet for long, since each synchronises at its own pace, send signs of
life instead.
"""

import json
import time

from hvd_p3.shadow.channel import ANY
from hvd_p3.shadow.group import MEETING_TAG, VERDICT_TAG

_SIGNS_IN_LIMIT = 8  # signs of life within the time limit
# While a rank waits for an all-reduce, up to the time limit, it sends none.
_LIMITS_UNTIL_GONE = 2


class SynchronizationError(RuntimeError):
    """Synchronisation has ended on this rank, which may train on; the message says why."""


class Verdict:
    """What a meeting has found.

    Args:
        finished: bool, whether all ranks have finished training.
        gone: List of int, the ranks that were given up.
        failed: bool, whether what some rank did after the last meeting has failed.
    """

    def __init__(self, finished, gone, failed):
        self.finished = finished
        self.gone = gone
        self.failed = failed


class Membership:
    """The meetings of one group. For one thread at a time.

    Args:
        group: `Group`; ranks that are given up leave it.
        session: int, the same on all ranks; messages of other sessions are ignored.
    """

    def __init__(self, group, session):
        self._group = group
        self._channel = group.channel
        self._session = session
        self._number = 0
        self._limit_s = _LIMITS_UNTIL_GONE * group.timeout_s
        self._sign_s = group.timeout_s / _SIGNS_IN_LIMIT
        self._last_sign = -float("inf")
        self._heard = dict.fromkeys(group.ranks, time.monotonic())
        self._early = []  # to the leader, before it has come to a meeting itself

    @property
    def _leader(self):
        return self._group.ranks[0]

    def show_life(self):
        """Tells the leader, or if this is the leader all others, that this rank is alive. Call it
        often: most calls do nothing."""
        now = time.monotonic()
        if now - self._last_sign < self._sign_s:
            return
        self._last_sign = now
        self._send_sign()
        if self._group.rank == self._leader:
            while (heard := self._hear(0))[0] is not None:
                self._early.append(heard)

    def _send_sign(self):
        if self._group.rank == self._leader:
            for rank in self._group.ranks[1:]:
                self._send(rank, VERDICT_TAG, {"sign": True})
        else:
            self._send(self._leader, MEETING_TAG, {"sign": True})

    def leave(self):
        """Tells the others not to wait for this rank, which will come to no meeting any more."""
        others = self._group.ranks[1:] if self._group.rank == self._leader else [self._leader]
        for rank in others:
            tag = MEETING_TAG if rank == self._leader else VERDICT_TAG
            self._send(rank, tag, {"left": True})

    def meet(self, finished=False, failed=False, signature=None, limit_s=None):
        """Waits until all ranks that are alive have come to the same meeting.

        Args:
            finished: bool, whether this rank has finished training.
            failed: bool, whether what it did after the last meeting has failed.
            signature: Optional list of str that must be the same on all ranks.
            limit_s: float, seconds after which a rank is given up; `None` is twice the group's.

        Returns:
            A `Verdict`, the same on all ranks.

        Raises:
            SynchronizationError: If this rank was given up by the others, or the leader is gone.
            ValueError: If signatures differ.
        """
        self._number += 1
        limit_s = self._limit_s if limit_s is None else limit_s
        mine = {
            "number": self._number,
            "finished": finished,
            "failed": failed,
            "signature": signature,
        }
        if self._group.rank == self._leader:
            verdict = self._lead(mine, limit_s)
        else:
            self._send(self._leader, MEETING_TAG, mine)
            verdict = self._wait_for_verdict(limit_s)
        if verdict["error"]:
            raise ValueError(verdict["error"])
        if self._group.rank not in verdict["ranks"]:
            raise SynchronizationError(
                f"the other ranks have given up rank {self._group.rank}, of which they had not "
                f"heard for {limit_s:g} s"
            )
        gone = [rank for rank in self._group.ranks if rank not in verdict["ranks"]]
        self._group.keep(verdict["ranks"])
        return Verdict(verdict["finished"], gone, verdict["failed"])

    def _lead(self, mine, limit_s):
        arrived = {self._group.rank: mine}
        expected = set(self._group.ranks)
        last_sign = time.monotonic()
        for rank in expected:  # what they have sent may not have been received yet
            if self._heard[rank] > -float("inf"):
                self._heard[rank] = max(self._heard[rank], last_sign - limit_s / 2)
        while expected - arrived.keys():
            sender, message = self._early.pop(0) if self._early else self._hear(self._sign_s)
            if sender in expected and message.get("number") == self._number:
                arrived[sender] = message
            now = time.monotonic()
            expected -= {
                rank for rank in expected - arrived.keys() if now - self._heard[rank] > limit_s
            }
            if now - last_sign > self._sign_s:
                last_sign = now
                self._send_sign()
        verdict = {
            "number": self._number,
            "ranks": sorted(arrived),
            "finished": all(each["finished"] for each in arrived.values()),
            "failed": any(each["failed"] for each in arrived.values()),
            "error": _difference({rank: each["signature"] for rank, each in arrived.items()}),
        }
        for rank in arrived.keys() - {self._group.rank}:
            self._send(rank, VERDICT_TAG, verdict)
        return verdict

    def _wait_for_verdict(self, limit_s):
        heard = time.monotonic()
        while True:
            try:
                _, _, message = self._channel.receive(self._leader, VERDICT_TAG, self._sign_s)
            except TimeoutError:
                if time.monotonic() - heard > limit_s:
                    raise SynchronizationError(
                        f"rank {self._leader}, where ranks meet, was not heard of for {limit_s:g} s"
                    ) from None
                # The leader may be waiting for others, or still train at its own pace.
                self._send_sign()
                continue
            heard = time.monotonic()
            verdict = self._parse(message)
            if "left" in verdict:
                raise SynchronizationError(
                    f"rank {self._leader}, where ranks meet, has ended synchronisation; see the "
                    "message of that rank"
                )
            if verdict.get("number") == self._number:
                return verdict

    def _hear(self, timeout_s):
        """The next (sender, message) to the leader, or (None, {}) without one."""
        try:
            sender, _, message = self._channel.receive(ANY, MEETING_TAG, timeout_s)
        except TimeoutError:
            return None, {}
        parsed = self._parse(message)
        if parsed:
            self._heard[sender] = -float("inf") if "left" in parsed else time.monotonic()
        if sender not in self._group.ranks and "number" in parsed:
            # It was given up, and is alive after all.
            verdict = {"number": parsed["number"], "ranks": self._group.ranks, "error": ""}
            self._send(sender, VERDICT_TAG, verdict)
        return sender, parsed

    def _send(self, rank, tag, message):
        encoded = json.dumps({"session": self._session, **message}).encode()
        self._channel.send(rank, tag, encoded)

    def _parse(self, message):
        """The message as a dict; empty if it belongs to another session."""
        parsed = json.loads(message.tobytes())
        return parsed if parsed["session"] == self._session else {}


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
