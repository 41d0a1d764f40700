"""Channels between ranks for what goes on in the background of training."""

import numpy as np

from hvd_p3 import _engine, process

ANY = _engine.ANY  # any rank, or any tag
ChannelClosedError = _engine.ChannelClosedError

_OPEN_S = 60.0
_ANSWER_S = 60.0
# All-reduces of this size come closest to what a network can do; see docs/performance.md.
_SLICE_BYTES = 256 * 1024


class Channel:
    """Messages between two ranks, and sums over several, apart from all other communication.

    Made by `open_channel`. Any number of threads may use a channel at the same time, with two
    limits: `all_reduce` is for one thread at a time, and a message goes to only one of the threads
    that could receive it, so give conversations tags of their own. Calls that wait do so asleep,
    without the GIL.

    Nothing hangs when other ranks are gone: calls that wait have time limits and raise
    `TimeoutError`. After `close`, and after `hvd_p3.shutdown`, all calls raise
    `ChannelClosedError`; calls that were waiting do so within milliseconds. If another rank has
    ended its program, and with it MPI on all ranks, they raise `RuntimeError`.

    Args:
        engine_channel: `_engine.ShadowChannel`.

    Example:

    ```python
    channel = open_channel("greetings")  # on all ranks
    if channel.rank == 0:
        channel.send(1, tag=5, message=np.arange(3, dtype="float32"))
    elif channel.rank == 1:
        sender, tag, message = channel.receive(rank=0, tag=5, timeout_s=10)
        print(message.view("float32"))
    total = np.ones(4, "float32")
    channel.all_reduce(total)  # size() everywhere
    channel.close()
    ```
    """

    def __init__(self, engine_channel):
        self._channel = engine_channel
        self._all_ranks = list(range(engine_channel.size))

    @property
    def name(self):
        """str, by which errors call the channel."""
        return self._channel.name

    @property
    def rank(self):
        """int, the number of this rank."""
        return self._channel.rank

    @property
    def size(self):
        """int, the number of ranks."""
        return self._channel.size

    def send(self, rank, tag, message):
        """Sends a copy of a message and returns at once, without waiting for the receiver.

        Messages from one rank to another with one tag arrive in the order in which they were sent.

        Args:
            rank: int, the receiver; may be this rank.
            tag: int from 0 to 32766.
            message: bytes, or a NumPy array that is contiguous in memory, of any size.

        Raises:
            ValueError: If there is no such rank or tag.
            ChannelClosedError: If the channel is closed.
            RuntimeError: If MPI has ended or the network has failed.
        """
        self._channel.send(rank, tag, message)

    def flush(self, timeout_s=_ANSWER_S):
        """Waits until the receivers have begun to take all that this rank has sent.

        Args:
            timeout_s: float, seconds.

        Raises:
            TimeoutError: If a receiver does not.
        """
        self._channel.flush(timeout_s)

    def receive(self, rank=ANY, tag=ANY, timeout_s=_ANSWER_S):
        """Waits for a message.

        Args:
            rank: int, the sender, or `ANY`.
            tag: int, or `ANY`.
            timeout_s: float, seconds. 0 only looks whether there is a message; less than 0 waits
                until the channel is closed.

        Returns:
            A tuple (sender, tag, message): int, int, and a NumPy array of uint8 that owns its
            memory. `message.view(dtype)` makes numbers of it without a copy, and
            `message.tobytes()` bytes.

        Raises:
            TimeoutError: If there is no message in time.
            ChannelClosedError: If the channel is closed before or meanwhile.
            RuntimeError: If MPI has ended or the network has failed.
        """
        return self._channel.receive(rank, tag, timeout_s)

    def all_reduce(
        self, array, timeout_s=_ANSWER_S, ranks=None, slice_bytes=_SLICE_BYTES, generation=0
    ):
        """Replaces the elements of an array by their sums over ranks.

        All ranks in `ranks` make the same calls in the same order. Waits asleep for those that are
        late.

        Args:
            array: NumPy array of float32 or float64, contiguous and writeable; of the same size and
                dtype on all ranks. Sums in place. After an error it holds sums in some places.
            timeout_s: float, seconds for the whole.
            ranks: List of int, in ascending order; `None` is all ranks.
            slice_bytes: int, bytes that travel as one piece.
            generation: int from 0, the same on all ranks. After an error, ranks that agree on a
                number that none of them has used can go on.

        Raises:
            TimeoutError: If not all ranks come in time. The ranks are out of step then: a later sum
                over the same `ranks` in the same generation raises `RuntimeError`.
            ChannelClosedError: If the channel is closed before or meanwhile.
            RuntimeError: If MPI has ended or the network has failed.
            ValueError: If an argument makes no sense.
        """
        if not isinstance(array, np.ndarray):
            raise ValueError(f"all_reduce works in place on a NumPy array. Received: {type(array)}")
        members = self._all_ranks if ranks is None else list(ranks)
        self._channel.all_reduce(array, timeout_s, members, generation, slice_bytes)

    def close(self):
        """Ends all calls that wait, on this rank, with `ChannelClosedError`."""
        self._channel.close()


def open_channel(name, timeout_s=_OPEN_S):
    """Opens a channel between all ranks.

    All ranks call this in the same order, from one thread at a time. The communicator is never
    freed, so open few channels and keep them.

    Args:
        name: str, the same on all ranks; by which errors call it.
        timeout_s: float, seconds to wait for other ranks.

    Returns:
        A `Channel`.

    Raises:
        TimeoutError: If a rank does not come.
        ValueError: If ranks give different names, or before `hvd_p3.init()`.
        RuntimeError: If Horovod runs without MPI on several ranks.

    Example:

    ```python
    channel = open_channel("lookups of table 'users'")
    ```
    """
    reduction = process.current().reduction
    if reduction == process.NOT_NEEDED:
        return Channel(_engine.in_process_channels(name, 1)[0])
    if reduction == process.HOROVOD:
        raise RuntimeError(
            f"Channel {name!r} needs MPI, but Horovod runs on Gloo. Launch with `horovodrun --mpi`."
        )
    return Channel(_engine.mpi_channel(name, timeout_s))


def in_process_channels(name, size):
    """Channels between threads of one process, for tests: a list of `Channel`, one for each rank.

    Args:
        name: str.
        size: int, number of ranks.
    """
    return [Channel(each) for each in _engine.in_process_channels(name, size)]
