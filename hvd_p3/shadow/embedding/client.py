"""The asking side: requests to the owners of rows, and their replies."""

import contextlib
import itertools
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
        self._new_tags = itertools.count(messages.FIRST_REPLY_TAG)

    @contextlib.contextmanager
    def _tag(self):
        """A tag that no other conversation has. After an error it is not used again."""
        with self._lock:
            tag = self._free_tags.pop() if self._free_tags else next(self._new_tags)
        yield tag
        with self._lock:
            self._free_tags.append(tag)

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
        with self._tag() as tag:
            deadline = time.monotonic() + timeout_s
            encoded = {}
            for owner, request in requests.items():
                encoded[owner] = messages.encode_request(request._replace(reply_tag=tag))
                self._send(owner, encoded[owner], description)
            yield lambda: {
                owner: self._reply(owner, tag, encoded[owner], description, deadline, timeout_s)
                for owner in encoded
            }

    def tell(self, owner, request, description):
        """Sends a request that is not answered."""
        self._send(owner, messages.encode_request(request), description)

    def _send(self, owner, message, description):
        self._check_not_gone(owner, description)
        try:
            self._channel.send(owner, messages.REQUEST_TAG, message)
        except RuntimeError as error:
            raise _unreachable(owner, description, f"takes no message ({error})") from error

    def _reply(self, owner, tag, message, description, deadline, timeout_s):
        while True:
            kind, payload = messages.decode_reply(
                self._receive(owner, tag, description, deadline, timeout_s)
            )
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
            self._send(owner, message, description)

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
