"""The owner's side: a thread on every rank that answers for the rows which the rank owns."""

import threading
import time
import traceback

from hvd_p3.shadow.embedding import messages

# How long the thread waits for a message before it looks whether it is to end.
_LOOK_UP_S = 0.2
# How often a rank that ends asks the others whether they are alive, soon and later.
_ASK_SOON_S = 0.02
_ASK_S = 1.0
# How long it waits for a sign of life of one that has not answered a lookup in time.
_OF_SUSPECTS_S = 5.0


class Service:
    """Answers requests for shards, in the order in which they come, until it is closed.

    Requests of one rank are answered in the order in which it sent them, so a lookup sees all
    earlier updates of its rank.

    Args:
        rank: int.
        size: int. Number of ranks.
        channel: `hvd_p3.shadow.channel.Channel` that nothing but embeddings use.
    """

    def __init__(self, rank, size, channel):
        self._rank = rank
        self._others = [other for other in range(size) if other != rank]
        self._channel = channel
        self._lock = threading.Lock()
        self._shards = {}  # table -> (description, shard)
        self._failures = {}  # table -> text, of an update that failed
        self._released = {}  # table -> description
        self._done = set()  # ranks that ask nothing more
        self._gone = {}  # rank -> why it does not answer any more
        self._last_heard = {}
        self._suspects = set()  # ranks that have not answered in time, and were not heard since
        self._why_ended = None
        self._is_to_end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hvd_p3 embeddings", daemon=True)

    def start(self):
        """Starts the thread."""
        self._thread.start()

    def add(self, description, shard):
        """Answers for a shard from now on.

        Args:
            description: `TableDescription`.
            shard: `Shard`, with this rank's part.
        """
        with self._lock:
            self._shards[description.key] = (description, shard)

    def release(self, description):
        """Stops answering for a table; later requests get an error that says so."""
        with self._lock:
            self._shards.pop(description.key, None)
            self._released[description.key] = description

    def why_gone(self, rank):
        """Returns why a rank will never answer again, as a str, or `None` if it may."""
        if self._why_ended is not None:
            return f"the channel of this rank has ended ({self._why_ended})"
        return self._gone.get(rank)

    def suspect(self, rank):
        """Notes that a rank has not answered in time."""
        self._suspects.add(rank)

    def close(self, patience_s):
        """Ends the service, once no other rank needs it any more. Call when this rank asks no more.

        Args:
            patience_s: float. How long a rank may give no sign of life before this one stops
                waiting for it.

        Returns:
            The ranks that gave none, as a list of int.
        """
        self._tell_all(messages.DONE)
        started = time.monotonic()
        silent = set()
        while self._thread.is_alive():
            missing = [
                rank for rank in self._others if rank not in self._done and rank not in self._gone
            ]
            now = time.monotonic()
            silent = set()
            for rank in missing:
                silent_s = now - max(started, self._last_heard.get(rank, 0.0))
                suspected = rank in self._suspects
                if silent_s > (min(patience_s, _OF_SUSPECTS_S) if suspected else patience_s):
                    silent.add(rank)
            if len(silent) == len(missing):
                break
            for rank in missing:
                self._send(rank, messages.ALIVE)
            self._is_to_end.wait(_ASK_S if now - started > _ASK_S else _ASK_SOON_S)
        self._is_to_end.set()
        self._thread.join(patience_s)
        return sorted(silent)

    def abort(self):
        """Ends the service at once, and tells the other ranks."""
        self._is_to_end.set()
        self._tell_all(messages.GONE)

    def _tell_all(self, kind):
        for rank in self._others:
            self._send(rank, kind)

    def _send(self, rank, kind):
        if rank in self._gone:
            return
        try:
            message = messages.encode_request(messages.Request(kind))
            self._channel.send(rank, messages.REQUEST_TAG, message)
        except RuntimeError as error:
            self._gone[rank] = f"it takes no message ({error})"

    def _run(self):
        while not self._is_to_end.is_set():
            try:
                source, _, message = self._channel.receive(
                    tag=messages.REQUEST_TAG, timeout_s=_LOOK_UP_S
                )
            except TimeoutError:
                continue
            except RuntimeError as error:  # closed, or MPI has ended
                self._why_ended = str(error)
                return
            self._last_heard[source] = time.monotonic()
            self._suspects.discard(source)
            try:
                self._serve(source, messages.decode_request(message))
            except Exception:  # of a request that makes no sense; others may do better
                traceback.print_exc()

    def _serve(self, source, request):
        try:
            reply = self._answer(source, request)
        except Exception as error:  # such as no memory; other requests may do better
            traceback.print_exc()
            reply = messages.encode_reply(messages.FAILED, f"{type(error).__name__}: {error}")
        if reply is None or request.reply_tag == messages.REQUEST_TAG:
            return  # nobody waits for it
        try:
            self._channel.send(source, request.reply_tag, reply)
        except RuntimeError as error:
            self._gone[source] = f"it takes no message ({error})"

    def _answer(self, source, request):
        """Does what the request says; returns the reply's bytes or `None`."""
        if request.kind == messages.LOOKUP:
            return self._look_up(request)
        if request.kind == messages.UPDATE:
            self._update(source, request)
        elif request.kind == messages.FLUSH:
            return self._flush(request)
        elif request.kind == messages.ALIVE:
            self._send(source, messages.ALIVE_TOO)
        elif request.kind == messages.DONE:
            self._done.add(source)
        elif request.kind == messages.GONE:
            self._gone[source] = "it has ended its program"
        return None

    def _look_up(self, request):
        with self._lock:
            description, shard = self._shards.get(request.table, (None, None))
            released = self._released.get(request.table)
            failure = self._failures.get(request.table)
        if released is not None:
            text = f"it has released layer '{released.name}' while other ranks still use it"
            return messages.encode_reply(messages.FAILED, text)
        if shard is None:
            return messages.encode_reply(messages.UNKNOWN_TABLE)
        if description.arguments_key != request.arguments:
            return messages.encode_reply(messages.OTHER_TABLE, description.arguments)
        if failure is not None:
            return messages.encode_reply(messages.FAILED, failure)
        return messages.encode_reply(messages.OK, shard.gather(request.rows).tobytes())

    def _flush(self, request):
        with self._lock:
            failure = self._failures.get(request.table)
        if failure is not None:
            return messages.encode_reply(messages.FAILED, failure)
        return messages.encode_reply(messages.OK)

    def _update(self, source, request):
        with self._lock:
            _, shard = self._shards.get(request.table, (None, None))
        if shard is None:
            return  # released, which the next lookup is told
        try:
            shard.update(request.rows, request.gradients, request.statistic, request.learning_rate)
        except Exception as error:  # of an optimizer of the user
            traceback.print_exc()
            with self._lock:
                self._failures[request.table] = (
                    f"an update that rank {source} sent has failed there with "
                    f"{type(error).__name__}: {error}"
                )
