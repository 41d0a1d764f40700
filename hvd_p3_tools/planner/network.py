"""A network between ranks, and what an all-reduce on it takes: the α-β model."""

import dataclasses
import math

from hvd_p3_tools.planner import bounds
from hvd_p3_tools.planner.errors import PlannerError


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

    def __post_init__(self):
        requirements = {
            "bandwidth": (0 < self.bandwidth < math.inf, "finite and greater than 0 (bytes/s)"),
            "latency_s": (0 <= self.latency_s < math.inf, "finite and not negative (seconds)"),
            "background": (0 <= self.background < 1, "at least 0 and below 1 (a share of links)"),
            "ranks_per_link": (self.ranks_per_link >= 1, "at least 1"),
            "oversubscription": (1 <= self.oversubscription < math.inf, "at least 1"),
            "long_message_share": (0 < self.long_message_share <= 1, "above 0 and at most 1"),
            "long_message_bytes": (self.long_message_bytes >= 0, "not negative (bytes)"),
        }
        for name, (fits, requirement) in requirements.items():
            if not fits:
                raise PlannerError(f"{name} must be {requirement}. Received: {getattr(self, name)}")

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

    On 2^k ranks the longest message of recursive halving and doubling is half of the data; on
    others that of a ring is `1 / ranks` of it (Patarasuk and Yuan, 2009; Thakur et al., 2005).

    Args:
        network: `Network`.
        ranks: int.
        size_bytes: float, of the data of one rank.

    Returns:
        float.
    """
    longest = size_bytes / (2 if _is_power_of_2(ranks) else ranks)
    bandwidth = network.rank_bandwidth * network.share(longest)
    return bounds.communication_s(size_bytes, ranks, bandwidth)


def all_reduce_latency_s(network, ranks):
    """Seconds of an all-reduce of nothing: 2 log₂ n messages one after another on n = 2^k ranks,
    and 2 (n - 1) in a ring on others, as hvd_p3 has MPI do it.

    Args:
        network: `Network`.
        ranks: int.

    Returns:
        float.
    """
    messages = math.log2(ranks) if _is_power_of_2(ranks) else ranks - 1
    return 2 * messages * network.latency_s


def round_s(network, ranks):
    """Seconds in which ranks agree on a few bytes, by dissemination: ⌈log₂ n⌉ messages.

    Args:
        network: `Network`.
        ranks: int.

    Returns:
        float.
    """
    return math.ceil(math.log2(ranks)) * network.latency_s


def _is_power_of_2(ranks):
    return ranks & (ranks - 1) == 0


def from_fit(fit):
    """Makes a network of what was measured of all-reduces.

    Args:
        fit: `profile.AllReduceFit`.

    Returns:
        `Network`, whose all-reduces on as many ranks take what the fit says.
    """
    one = all_reduce_latency_s(Network(fit.bytes_per_s, latency_s=1.0), fit.ranks)
    return Network(fit.bytes_per_s, latency_s=fit.latency_s / one)
