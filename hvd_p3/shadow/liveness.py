"""Who is alive: ranks send signs of life, and those that are silent are given up.

The first rank leads: all others talk to it, and it to all. If it is the leader that is silent, each
rank turns to the next one.
"""

import json
import time

from hvd_p3.shadow.channel import ANY
from hvd_p3.shadow.group import MEETING_TAG, VERDICT_TAG

_SIGNS_IN_LIMIT = 8  # signs of life within the time limit


class SynchronizationError(RuntimeError):
    """Synchronisation has ended on this rank, which may train on; the message says why."""


class Liveness:
    """The ranks that are alive, as this one knows. For one thread at a time; `leave` for any.

    Args:
        group: `Group`.
        session: int, the same on all ranks; messages of other sessions are ignored.
        limit_s: float, seconds of silence after which a rank is given up.
    """

    def __init__(self, group, session, limit_s):
        self._channel = group.channel
        self._rank = group.rank
        self._session = session
        self._limit_s = limit_s
        self.sign_s = group.timeout_s / _SIGNS_IN_LIMIT
        self.ranks = group.ranks
        self._last_sign = self._last_listened = time.monotonic()
        self._heard = dict.fromkeys(self.ranks, self._last_sign)
        self._early = []  # to the leader, before it has come to a meeting itself
        self.takes_over = False  # whether this rank has come to lead since the last meeting
        self.left = set()  # ranks that have said that they leave
        self.returning = set()  # those of them that may come to another session

    @property
    def leader(self):
        return self.ranks[0]

    @property
    def leads(self):
        return self._rank == self.leader

    def show(self, give_up):
        """Tells the leader, or if this is the leader all others, that this rank is alive. Call it
        often: most calls do nothing.

        Args:
            give_up: bool, whether to give up ranks that are silent.

        Raises:
            SynchronizationError: If this rank was given up by the others.
        """
        now = time.monotonic()
        if now - self._last_sign < self.sign_s:
            return
        self.send_signs()
        if now - self._last_listened > 2 * self.sign_s:
            self.excuse(self._limit_s)
        self._listen()
        known = len(self.ranks)
        if give_up:
            self.drop_silent(self._limit_s)
        if len(self.ranks) < known:
            self.send_signs()  # they say who is left

    def leave(self, returns):
        """Tells the others not to wait for this rank, which will come to no meeting any more.

        Args:
            returns: bool, whether it may come to another session.
        """
        message = {"leaves": True, "returns": returns}
        if self.leads:
            for rank in self.ranks[1:]:
                self.send(rank, VERDICT_TAG, message)
        else:
            self.send(self.leader, MEETING_TAG, message)

    def send_signs(self, missing=()):
        """Args: missing: the ranks for which a meeting waits."""
        self._last_sign = time.monotonic()
        if self.leads:
            sign = {"sign": True, "ranks": self.ranks, "missing": list(missing)}
            for rank in self.ranks[1:]:
                self.send(rank, VERDICT_TAG, sign)
        else:
            self.send(self.leader, MEETING_TAG, {"sign": True})

    def sign_is_due(self):
        return time.monotonic() - self._last_sign > self.sign_s

    def _listen(self):
        """Takes what has arrived from those that this rank listens to."""
        if self.leads:
            while (heard := self._receive(0))[0] is not None:
                if "number" in heard[1]:  # not signs, of which there are ever more
                    self._early.append(heard)
        else:
            while self.hear_leader(0) is not None:
                pass

    def hear(self):
        """The next (sender, message) to the leader, or (None, {}) if none comes for a while."""
        return self._early.pop(0) if self._early else self._receive(self.sign_s)

    def _receive(self, timeout_s):
        self._last_listened = time.monotonic()
        try:
            sender, _, message = self._channel.receive(ANY, MEETING_TAG, timeout_s)
        except TimeoutError:
            return None, {}
        parsed = self._parse(message)
        self._note(sender, parsed)
        if sender not in self.ranks and parsed and "leaves" not in parsed:
            # It was given up, and is alive after all.
            self.send(sender, VERDICT_TAG, {"sign": True, "ranks": self.ranks, "missing": []})
        return sender, parsed

    def hear_leader(self, timeout_s):
        """The leader's next message, or None if none comes in time.

        Raises:
            SynchronizationError: If this rank was given up by the others.
        """
        self._last_listened = time.monotonic()
        try:
            _, _, message = self._channel.receive(self.leader, VERDICT_TAG, timeout_s)
        except TimeoutError:
            return None
        parsed = self._parse(message)
        self._note(self.leader, parsed)
        if self._rank not in parsed.get("ranks", [self._rank]):
            raise SynchronizationError(
                f"the other ranks have given up rank {self._rank}, of which they had not heard for "
                f"{self._limit_s:g} s"
            )
        if "sign" in parsed:
            self.ranks = parsed["ranks"]
        return parsed

    def _note(self, sender, parsed):
        if parsed:
            self._heard[sender] = time.monotonic()
        if "leaves" in parsed:
            self._heard[sender] = -float("inf")
            self.left.add(sender)
            if parsed["returns"]:
                self.returning.add(sender)

    def excuse(self, limit_s):
        """Gives ranks half of the limit at least: what they have sent while this one did not listen
        may not have been received yet."""
        self._heard_at_least(time.monotonic() - limit_s / 2)

    def _heard_at_least(self, when):
        for rank in self.ranks:
            if self._heard[rank] > -float("inf"):
                self._heard[rank] = max(self._heard[rank], when)

    def wait_for_leader(self):
        """Begins to count the leader's silence anew."""
        if self._heard[self.leader] > -float("inf"):
            self._heard[self.leader] = time.monotonic()

    def drop_silent(self, limit_s):
        """The leader drops the ranks that are silent, the others drop the leader."""
        now = time.monotonic()
        led = self.leads
        watched = self.ranks[1:] if led else [self.leader]
        silent = {rank for rank in watched if now - self._heard[rank] > limit_s}
        self.ranks = [rank for rank in self.ranks if rank not in silent]
        if silent and not led:
            # They had no reason to talk to each other, and may notice later than this rank.
            self._heard_at_least(now + limit_s / 2)
            self.takes_over = self.leads

    def send(self, rank, tag, message):
        """Sends a dict."""
        encoded = json.dumps({"session": self._session, **message}).encode()
        self._channel.send(rank, tag, encoded)

    def _parse(self, message):
        """The message as a dict; empty if it belongs to another session."""
        parsed = json.loads(message.tobytes())
        return parsed if parsed["session"] == self._session else {}
