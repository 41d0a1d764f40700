"""The asking side: requests to the owners of rows, and their replies."""

import contextlib
import threading
import time

from hvd_p3.shadow.embedding import messages

# How long a wait lasts before it looks whether the owner has said that it is gone.
_LOOK_UP_S = 0.5
# How long an owner gets to make a table before it is asked again.
_RETRY_S = 0.02


class Client:
    """Sends requests to owners. Any thread may call, and threads do not wait for each other.

    Args:
        channel: As in `Service`.
        service: The `Service` of this rank, which learns when other ranks are gone.
    """

    def __init__(self, channel, service):
        self._channel = channel
        self._service = service
        self._lock = threading.Lock()
        self._free_tags = []
        self._next_tag = messages.FIRST_REPLY_TAG
        self._retired = {}  # tag -> owners whose replies to it may still come

    def _take_tag(self, description):
        """A tag that no other conversation has."""
        with self._lock:
            if self._free_tags:
                return self._free_tags.pop()
            # One look each time is enough, as long as there are new tags.
            has_new = self._next_tag <= messages.LAST_REPLY_TAG
            looks = min(1, len(self._retired)) if has_new else len(self._retired)
        for _ in range(looks):
            tag = self._recover_tag()
            if tag is not None:
                return tag
        with self._lock:
            if self._next_tag <= messages.LAST_REPLY_TAG:
                self._next_tag += 1
                return self._next_tag - 1
        raise RuntimeError(
            f"layer '{description.name}' cannot ask other ranks: all {messages.LAST_REPLY_TAG} "
            "conversations still wait for owners that have not answered. Find out why, and start "
            "the job again."
        )

    def _recover_tag(self):
        """Returns the tag that was retired first if it can be used again, otherwise `None`."""
        with self._lock:
            if not self._retired:
                return None
            tag = next(iter(self._retired))
            owners = self._retired.pop(tag)  # so that no other thread takes its replies
        self._take_late_replies(tag, owners)
        if not owners:
            return tag
        with self._lock:
            self._retired[tag] = owners
        return None

    def _take_late_replies(self, tag, owners):
        """Takes away the owners whose replies have come, or never will.

        A reply that comes later would be taken for that of another conversation with the tag.
        """
        for owner in list(owners):
            try:
                self._channel.receive(owner, tag, 0.0)
            except TimeoutError:
                if self._service.why_gone(owner) is None:
                    continue
            except RuntimeError:  # closed, or MPI has ended: so will be what is asked next
                continue
            owners.discard(owner)

    @contextlib.contextmanager
    def ask(self, requests, description, timeout_s):
        """A context in which the requests are on their way.

        Args:
            requests: dict of owner (int) to `Request`, without reply tags.
            description: `TableDescription`.
            timeout_s: float. How long an owner may take.

        Yields:
            A function that waits for all replies and returns a dict of owner to payload.
        """
        tag = self._take_tag(description)
        waiting = set()  # owners that have been asked and have not answered
        try:
            deadline = time.monotonic() + timeout_s
            encoded = {}
            for owner, request in requests.items():
                encoded[owner] = messages.encode_request(request._replace(reply_tag=tag))
                self._ask(owner, encoded[owner], description, waiting)
            yield lambda: {
                owner: self._reply(
                    owner, tag, encoded[owner], description, deadline, timeout_s, waiting
                )
                for owner in encoded
            }
        finally:
            with self._lock:
                if waiting:
                    self._retired[tag] = waiting
                else:
                    self._free_tags.append(tag)

    def _ask(self, owner, message, description, waiting):
        self._send(owner, message, description)
        waiting.add(owner)

    def tell(self, owner, request, description):
        """Sends a request that is not answered."""
        self._send(owner, messages.encode_request(request), description)

    def _send(self, owner, message, description):
        self._check_not_gone(owner, description)
        try:
            self._channel.send(owner, messages.REQUEST_TAG, message)
        except RuntimeError as error:
            raise _unreachable(owner, description, f"takes no message ({error})") from error

    def _reply(self, owner, tag, message, description, deadline, timeout_s, waiting):
        while True:
            reply = self._receive(owner, tag, description, deadline, timeout_s)
            waiting.discard(owner)
            kind, payload = messages.decode_reply(reply)
            if kind == messages.OK:
                return payload
            if kind == messages.OTHER_TABLE:
                raise RuntimeError(
                    f"the ranks disagree about layer '{description.name}': {description.arguments} "
                    f"on this rank; {bytes(payload).decode()} on rank {owner}. Build the same "
                    "layers, in the same order, on all ranks."
                )
            if kind == messages.FAILED:
                raise _unreachable(owner, description, f"cannot answer: {bytes(payload).decode()}")
            if time.monotonic() + _RETRY_S > deadline:
                raise _unreachable(
                    owner,
                    description,
                    f"has not built the layer for {timeout_s:g} s (timeout_s of the layer): build "
                    "the same layers, in the same order, on all ranks",
                )
            time.sleep(_RETRY_S)
            self._ask(owner, message, description, waiting)

    def _receive(self, owner, tag, description, deadline, timeout_s):
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                self._service.suspect(owner)
                raise _unreachable(
                    owner,
                    description,
                    f"has not answered for {timeout_s:g} s (timeout_s of the layer): it has "
                    "stopped or is out of reach",
                )
            try:
                return self._channel.receive(owner, tag, min(left, _LOOK_UP_S))[2]
            except TimeoutError:
                self._check_not_gone(owner, description)
            except RuntimeError as error:
                raise _unreachable(owner, description, f"cannot answer: {error}") from error

    def _check_not_gone(self, owner, description):
        reason = self._service.why_gone(owner)
        if reason is not None:
            raise _unreachable(owner, description, f"is gone: {reason}")


def _unreachable(owner, description, what):
    return RuntimeError(f"rank {owner}, which owns a part of layer '{description.name}', {what}.")
