"""A network between ranks, and what an all-reduce on it takes: the α-β model."""

import dataclasses
import math

from hvd_p3_tools.planner import bounds
from hvd_p3_tools.planner.errors import PlannerError

_LEAST_BANDWIDTH, _MOST_LATENCY_S = 1.0, 1e9  # beyond, times are no numbers
ALL_REDUCES = {
    "mpi": "as hvd_p3 has MPI do it: halving and doubling on 2^k ranks, a ring on others",
    "tree": "up and down a tree of ranks, in pieces that follow one another, as NCCL does it",
    "ring": "in a ring",
}


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of equal links, each of which sends and receives at the same time.

    Args:
        bandwidth: float. Of a link, bytes per second in each direction.
        latency_s: float. Seconds from one rank to another for a message without bytes.
        background: float in [0, 1). Share of each link that other jobs use.
        ranks_per_link: int. Ranks of a host that share its link, each with traffic of its own.
        oversubscription: float of at least 1. How much more the links could carry together than
            the switches between them do.
        long_message_share: float in (0, 1]. Share of the bandwidth that messages longer than
            `long_message_bytes` reach. Open MPI over TCP was measured to reach about a half, see
            `docs/performance.md`; 1 if there is no such difference.
        long_message_bytes: float.
        all_reduce: str, one of `ALL_REDUCES`.

    Raises:
        PlannerError: If a value is out of its range.
    """

    bandwidth: float
    latency_s: float = 20e-6
    background: float = 0.0
    ranks_per_link: int = 1
    oversubscription: float = 1.0
    long_message_share: float = 1.0
    long_message_bytes: float = 64 * 1024
    all_reduce: str = "mpi"

    def __post_init__(self):
        requirements = {
            "bandwidth": (0 < self.bandwidth < math.inf, "finite and greater than 0 (bytes/s)"),
            "latency_s": (0 <= self.latency_s <= _MOST_LATENCY_S, "from 0 to 1e9 (seconds)"),
            "background": (0 <= self.background < 1, "at least 0 and below 1 (a share of links)"),
            "ranks_per_link": (self.ranks_per_link >= 1, "at least 1"),
            "oversubscription": (1 <= self.oversubscription < math.inf, "at least 1"),
            "long_message_share": (0 < self.long_message_share <= 1, "above 0 and at most 1"),
            "long_message_bytes": (self.long_message_bytes >= 0, "not negative (bytes)"),
            "all_reduce": (self.all_reduce in ALL_REDUCES, f"of {', '.join(ALL_REDUCES)}"),
        }
        for name, (fits, requirement) in requirements.items():
            if not fits:
                raise PlannerError(f"{name} must be {requirement}. Received: {getattr(self, name)}")
        if not self.rank_bandwidth >= _LEAST_BANDWIDTH:
            raise PlannerError(
                f"the network must leave {_LEAST_BANDWIDTH:g} byte/s to each rank. "
                f"Received: {self.rank_bandwidth:g}"
            )

    @property
    def rank_bandwidth(self):
        """float, bytes per second that are left to each rank in each direction."""
        left = self.bandwidth * (1 - self.background)
        return left / (self.ranks_per_link * self.oversubscription)

    def share(self, message_bytes):
        """Returns the share of the bandwidth that messages of this length reach, as a float."""
        return self.long_message_share if message_bytes > self.long_message_bytes else 1.0


def all_reduce_wire_s(network, ranks, size_bytes):
    """Seconds in which an all-reduce keeps each link busy.

    On 2^k ranks the longest message of recursive halving and doubling is half of the data; that of
    a ring is `1 / ranks` of it (Patarasuk and Yuan, 2009; Thakur et al., 2005). A tree sends pieces
    of any length.

    Args:
        network: `Network`.
        ranks: int.
        size_bytes: float, of the data of one rank.

    Returns:
        float.
    """
    pieces = {"mpi": 2 if _is_power_of_2(ranks) else ranks, "tree": math.inf, "ring": ranks}
    longest = size_bytes / pieces[network.all_reduce]
    bandwidth = network.rank_bandwidth * network.share(longest)
    return bounds.communication_s(size_bytes, ranks, bandwidth)


def all_reduce_latency_s(network, ranks):
    """Seconds of an all-reduce of nothing: messages that wait for one another.

    Args:
        network: `Network`.
        ranks: int.

    Returns:
        float: 2 log₂ n latencies on n = 2^k ranks and 2 (n - 1) on others with `"mpi"`, 2 ⌈log₂ n⌉
        with `"tree"` and 2 (n - 1) with `"ring"`.
    """
    return all_reduce_messages(network.all_reduce, ranks) * network.latency_s


def all_reduce_messages(all_reduce, ranks):
    """Counts the messages of an all-reduce that wait for one another.

    Args:
        all_reduce: str, one of `ALL_REDUCES`.
        ranks: int.

    Returns:
        int.
    """
    if all_reduce == "tree" or (all_reduce == "mpi" and _is_power_of_2(ranks)):
        return 2 * round_messages(ranks)
    return 2 * (ranks - 1)


def round_s(network, ranks):
    """Seconds in which ranks agree on a few bytes, by dissemination: ⌈log₂ n⌉ messages.

    Args:
        network: `Network`.
        ranks: int.

    Returns:
        float.
    """
    return round_messages(ranks) * network.latency_s


def round_messages(ranks):
    """Counts the messages of a round that wait for one another: ⌈log₂ n⌉.

    Args:
        ranks: int.

    Returns:
        int.
    """
    return (ranks - 1).bit_length()


def _is_power_of_2(ranks):
    return ranks & (ranks - 1) == 0


def from_fit(fit, all_reduce="mpi", rounds=1, cycle_s=0.0):
    """Makes a network of what was measured of all-reduces, one after another.

    The α of a fit is not only that of an all-reduce: first ranks agree on it. So an all-reduce that
    is simulated alone takes what the fit says.

    Args:
        fit: `profile.AllReduceFit`.
        all_reduce: str, one of `ALL_REDUCES`, which the measured ranks used.
        rounds: int. Of negotiation for each all-reduce: 1 in hvd_p3, 2 in stock Horovod (requests
            to the coordinator, and its answer).
        cycle_s: float. Of stock Horovod: what an all-reduce waits for the next cycle, if it was
            asked for just after one began. 0 in hvd_p3.

    Returns:
        `Network`. Its latency is 0 if the cycle alone is longer than α.
    """
    messages = all_reduce_messages(all_reduce, fit.ranks) + rounds * round_messages(fit.ranks)
    latency_s = max(0.0, fit.latency_s - cycle_s) / messages
    return Network(fit.bytes_per_s, latency_s, all_reduce=all_reduce)
