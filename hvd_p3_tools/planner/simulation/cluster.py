"""What is simulated besides the model: the ranks, their network, and the settings."""

import dataclasses
import math

from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.network import Network

MOST_RANKS = 1 << 20
_LEAST_CYCLE_S = 1e-6  # of shorter ones there would be more than floats count


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Ranks on a network. All are alike, but for stragglers.

    Args:
        ranks: int.
        network: `Network`.
        stragglers: int, the number of ranks that compute slower than the others.
        straggler_factor: float of at least 1. How many times as long they compute.
        servers: int, of the scheme with parameter servers; default: one on each rank's machine.
        server_bandwidth: float. Of the link of a server with a machine of its own, in bytes per
            second; None if servers are on the ranks' machines.

    Raises:
        PlannerError: If a value is out of its range.
    """

    ranks: int
    network: Network
    stragglers: int = 0
    straggler_factor: float = 1.0
    servers: int | None = None
    server_bandwidth: float | None = None

    def __post_init__(self):
        if not 1 <= self.ranks <= MOST_RANKS:
            raise PlannerError(f"ranks must be from 1 to {MOST_RANKS}. Received: {self.ranks}")
        if not 0 <= self.stragglers <= self.ranks:
            raise PlannerError(
                f"stragglers must be from 0 to the number of ranks ({self.ranks}). "
                f"Received: {self.stragglers}"
            )
        if not 1 <= self.straggler_factor < math.inf:
            raise PlannerError(
                f"straggler_factor must be at least 1. Received: {self.straggler_factor}"
            )

    def groups(self):
        """Divides the ranks into those that are alike.

        Returns:
            List of (number of ranks, factor of their time of computation), the fastest first.
        """
        if self.straggler_factor == 1:
            return [(self.ranks, 1.0)]
        groups = [(self.ranks - self.stragglers, 1.0), (self.stragglers, self.straggler_factor)]
        return [group for group in groups if group[0] > 0]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the engines, with the defaults of hvd_p3 and of Horovod 0.28.

    Args:
        slice_bytes: int, `HVD_P3_SLICE_BYTES`.
        credit_bytes: int, `HVD_P3_CREDIT_BYTES`.
        priorities: bool, `HVD_P3_PRIORITIES`.
        fuse: bool. Whether small gradients share slices, as they do in hvd_p3.
        fusion_bytes: int, `HOROVOD_FUSION_THRESHOLD`.
        cycle_s: float, `HOROVOD_CYCLE_TIME`, but in seconds.

    Raises:
        PlannerError: If a value is out of its range.
    """

    slice_bytes: int = 120 * 1024
    credit_bytes: int = 768 * 1024
    priorities: bool = True
    fuse: bool = True
    fusion_bytes: int = 128 * 1024 * 1024
    cycle_s: float = 1e-3

    def __post_init__(self):
        for name, least in (
            ("slice_bytes", 1),
            ("credit_bytes", 1),
            ("fusion_bytes", 0),
            ("cycle_s", 0),
        ):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise PlannerError(f"{name} must be at least {least}. Received: {value}")
        if 0 < self.cycle_s < _LEAST_CYCLE_S:
            raise PlannerError(
                f"cycle_s must be 0 or at least {_LEAST_CYCLE_S:g} (seconds). "
                f"Received: {self.cycle_s}"
            )
