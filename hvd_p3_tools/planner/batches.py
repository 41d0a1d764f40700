"""The batches that fit a device, what they take, and how fast one rank alone is with them."""

import dataclasses

from hvd_p3_tools.planner import algorithms, memory
from hvd_p3_tools.planner.profile import Profile

_HALVES = 4  # of the largest batch


@dataclasses.dataclass(frozen=True)
class BatchOption:
    """A batch of a rank.

    Args:
        batch: int.
        memory: `memory.Memory`.
        algorithms: `algorithms.Algorithms`, of its convolutions: the fastest within the memory if
            times come from FLOPs; those of the least workspace if times were measured, since the
            library had chosen then, and no one knows what.
        profile: `profile.Profile` for this batch, with these algorithms.
        gemm_s: float. Seconds of a step of one rank alone if all convolutions were done by GEMM.
    """

    batch: int
    memory: memory.Memory
    algorithms: algorithms.Algorithms
    profile: Profile
    gemm_s: float

    @property
    def step_s(self):
        """float, input, both passes and update on one rank alone."""
        return self.profile.compute_s

    @property
    def throughput(self):
        """float, examples per second of one rank alone."""
        return self.batch / self.step_s


def options(profile, device, optimizer, ranks):
    """Lists the largest batch that fits, halves of it, and the batch of the profile if it fits.

    Args:
        profile: `profile.Profile`.
        device: `Device`.
        optimizer: str, one of `memory.OPTIMIZER_COPIES`.
        ranks: int.

    Returns:
        List of `BatchOption`, by batch.

    Raises:
        PlannerError: If not even one example fits.
    """
    largest = memory.largest_batch(profile, device.memory_bytes, optimizer, ranks)
    sizes = {largest >> shift for shift in range(_HALVES + 1)} | {min(profile.batch, largest)}
    return [_option(profile, batch, device, optimizer, ranks) for batch in sorted(sizes - {0})]


def _option(profile, batch, device, optimizer, ranks):
    needed = memory.account(profile, batch, optimizer, ranks)
    scaled = profile.at_batch(batch)
    if profile.flops_per_s is None:
        chosen = algorithms.least(profile, batch, device)
        return BatchOption(batch, needed, chosen, scaled, scaled.compute_s)
    chosen = algorithms.choose(profile, batch, device, device.memory_bytes - needed.bytes)
    return BatchOption(batch, needed, chosen, chosen.apply(scaled), scaled.compute_s)
