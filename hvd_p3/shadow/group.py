"""What an algorithm of synchronisation sees of the other ranks."""

import warnings

import numpy as np

from hvd_p3.shadow.channel import ANY

# Tags of a group's channel. Algorithms use others, from 100 on.
MEETING_TAG = 1
VERDICT_TAG = 2


def names_of(ranks):
    """Ranks as people call them: "rank 3", or "ranks 3, 5"."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


class Group:
    """The ranks that synchronise, and ways to talk to them. For one thread at a time, but `send`
    and `receive` are for any.

    Args:
        channel: `Channel`.
        timeout_s: float, seconds after which a rank that does not answer counts as gone.
        ranks: Optional list of int, those that take part; by default all of the channel.
        generation: int, of the sums of these ranks; see `Channel.all_reduce`.
    """

    def __init__(self, channel, timeout_s, ranks=None, generation=0):
        self.channel = channel
        self.timeout_s = timeout_s
        # Optional NumPy array of bool, for each element of the weights: whether it must stay within
        # the values of the ranks, as statistics and weights with a constraint must.
        self.bounded = None
        self.agree(range(channel.size) if ranks is None else ranks, generation)

    @property
    def rank(self):
        """int, the number of this rank in the job."""
        return self.channel.rank

    @property
    def ranks(self):
        """List of int in ascending order: the ranks that take part; some may have been given up."""
        return list(self._ranks)

    @property
    def size(self):
        """int, how many ranks take part."""
        return len(self._ranks)

    @property
    def agreed_ranks(self):
        """List of int, the ranks of the last call of `agree`; some may have been given up since."""
        return list(self._agreed)

    @property
    def generation(self):
        """int, the generation of sums."""
        return self._generation

    def keep(self, ranks):
        """Goes on with some of the ranks. They call `agree` before the next sum."""
        self._ranks = list(ranks)

    def agree(self, ranks, generation):
        """Goes on with some of the ranks, which all call this, and a generation of their sums."""
        self._ranks = self._agreed = list(ranks)
        self._generation = generation

    def sum(self, vector):
        """The sum over the ranks; all of them call this.

        Args:
            vector: NumPy array of float32 or float64, of the same size on all ranks.

        Returns:
            A new NumPy array.

        Raises:
            TimeoutError: If some rank does not come within `timeout_s`.
        """
        total = vector.copy()
        self.channel.all_reduce(total, self.timeout_s, self._ranks, generation=self._generation)
        return total

    def mean(self, vector):
        """The mean over the ranks; as `sum`."""
        total = self.sum(vector)
        total /= self.size
        return total

    def broadcast(self, vector):
        """The first rank's vector, with the same bits on all ranks; as `sum`."""
        # Zeros change nothing but the sign of a negative zero, and that on all ranks alike.
        return self.sum(vector if self.rank == self._ranks[0] else np.zeros_like(vector))

    def send(self, rank, tag, message):
        """Sends a message to one rank and returns at once; see `Channel.send`.

        Args:
            rank: int.
            tag: int from 100 to 32766.
            message: bytes or NumPy array.
        """
        self.channel.send(rank, tag, message)

    def receive(self, rank=ANY, tag=ANY, timeout_s=None):
        """Waits for a message; see `Channel.receive`.

        Args:
            rank: int, or `ANY`.
            tag: int from 100 to 32766.
            timeout_s: float, seconds; `None` is the group's, less than 0 until the end.

        Returns:
            A tuple (sender, tag, message): int, int, NumPy array of uint8.
        """
        return self.channel.receive(rank, tag, self.timeout_s if timeout_s is None else timeout_s)

    def warn(self, text):
        """Says something to the user, on this rank.

        Args:
            text: str that ends the sentence "hvd_p3.shadow on rank 3: ...".
        """
        warnings.warn(f"hvd_p3.shadow on rank {self.rank}: {text}.", stacklevel=2)
