"""What it takes to bring a slice to all ranks: over all-reduce, or over parameter servers."""

import dataclasses

from hvd_p3_tools.planner import network as networks
from hvd_p3_tools.planner.errors import PlannerError


@dataclasses.dataclass(frozen=True)
class AllReduceTransfer:
    """All-reduces among ranks.

    Args:
        network: `network.Network`.
        ranks: int.
    """

    network: networks.Network
    ranks: int

    @property
    def round_s(self):
        """float, seconds of a negotiation round."""
        return networks.round_s(self.network, self.ranks)

    def wire_s(self, size_bytes):
        """Returns the seconds in which a slice keeps the busiest link busy."""
        return networks.all_reduce_wire_s(self.network, self.ranks, size_bytes)

    def delay_s(self, size_bytes):
        """Returns the seconds from the link's last byte of a slice to its result."""
        return networks.all_reduce_latency_s(self.network, self.ranks)


@dataclasses.dataclass(frozen=True)
class ServerTransfer:
    """Parameter servers: each rank pushes a slice to the server that has it, which sends the sum.

    Slices are spread evenly over servers. Servers on machines of their own are full duplex like
    the ranks, so pushes of one slice go beside pulls of another. Those on the ranks' machines share
    the ranks' links, as in the P3 paper's experiments.

    Args:
        network: `network.Network` of the ranks.
        ranks: int.
        servers: int, at least 1.
        server_bandwidth: float. Bytes per second of a server's link, in each direction; None if
            the servers are on the ranks' machines. There are at most as many of these as ranks.

    Raises:
        PlannerError: If a number is out of its range.
    """

    network: networks.Network
    ranks: int
    servers: int
    server_bandwidth: float | None = None

    def __post_init__(self):
        if self.servers < 1:
            raise PlannerError(f"servers must be at least 1. Received: {self.servers}")
        if self.server_bandwidth is None and self.servers > self.ranks:
            raise PlannerError(
                f"servers must be at most the number of ranks ({self.ranks}) on whose machines "
                f"they are; give --server-bandwidth for servers of their own. "
                f"Received: {self.servers}"
            )
        if self.server_bandwidth is not None and not self.server_bandwidth > 0:
            raise PlannerError(
                f"server_bandwidth must be greater than 0. Received: {self.server_bandwidth}"
            )

    # Each rank knows alone what it may send.
    round_s = 0.0

    def wire_s(self, size_bytes):
        """Returns the seconds in which a slice keeps the busiest link busy, on average."""
        if self.ranks == 1:
            return 0.0
        share = self.network.share(size_bytes)
        own = self.network.rank_bandwidth * share
        if self.server_bandwidth is None:
            # The link of a machine with a server carries, in each direction, what its rank has for
            # other servers, and what its server has for other ranks.
            of_rank = 1 - 1 / self.servers
            of_server = (self.ranks - 1) / self.servers
            return (of_rank + of_server) * size_bytes / own
        of_servers = self.servers * self.server_bandwidth * (1 - self.network.background) * share
        return max(size_bytes / own, self.ranks * size_bytes / of_servers)

    def delay_s(self, size_bytes):
        """Returns the seconds from the link's last byte of a slice to its result."""
        if self.ranks == 1:
            return 0.0
        pull = 0.0 if self.server_bandwidth is None else self.wire_s(size_bytes)
        return pull + 2 * self.network.latency_s
