"""Answers the sizing questions for a model on a device and a network."""

import dataclasses
import math

from hvd_p3_tools.planner import algorithms, hiding, memory, scaling, units
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.simulation.cluster import Settings
from hvd_p3_tools.planner.simulation.simulator import simulate

# Slices and credits that are tried, beside the defaults.
_SETTINGS = tuple(
    Settings(slice_bytes=slice_bytes, credit_bytes=credit_bytes)
    for slice_bytes in (120 * 1024, 512 * 1024, 2 * 2**20)
    for credit_bytes in (2**20, 4 * 2**20, 16 * 2**20)
    if credit_bytes >= slice_bytes
)


@dataclasses.dataclass(frozen=True)
class BatchOption:
    """A batch of a rank.

    Args:
        batch: int.
        memory: `memory.Memory`.
        algorithms: `algorithms.Algorithms`, of its convolutions.
        step_s: float, input, both passes and update on one rank alone, with these algorithms.
    """

    batch: int
    memory: memory.Memory
    algorithms: algorithms.Algorithms
    step_s: float

    @property
    def throughput(self):
        """float, examples per second of one rank alone."""
        return self.batch / self.step_s


@dataclasses.dataclass(frozen=True)
class Scaling:
    """A scheme on a number of GPUs.

    Args:
        scheme: str.
        gpus: int.
        step_s: float, simulated.
        overhead_s: float. T_O, what a step takes beyond forward and backward pass.
        ratio: float, R_O.
        efficiency: float, α of the lemma.
        speedup: float, α G of the lemma.
        throughput_ratio: float, simulated examples per second over those of one rank alone.
    """

    scheme: str
    gpus: int
    step_s: float
    overhead_s: float
    ratio: float
    efficiency: float
    speedup: float
    throughput_ratio: float


@dataclasses.dataclass(frozen=True)
class Hiding:
    """What hides the communication of a number of GPUs.

    Args:
        gpus: int.
        least_servers: int, with links like those of the GPUs or as given.
        bandwidth: float, bytes per second, for an all-reduce that takes as long as computation.
    """

    gpus: int
    least_servers: int
    bandwidth: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """All answers.

    Args:
        profile: `profile.Profile`.
        cluster: `Cluster`, with the most GPUs.
        device: `Device`.
        optimizer: str.
        batches: list of `BatchOption`, by batch; the last is the largest that fits.
        scalings: list of `Scaling`.
        hidings: list of `Hiding`.
        ranks_for_all_reduce: float, the most ranks whose all-reduce computation hides, or infinity.
        settings: tuple of `Settings` and the seconds of a step with them, the fastest of some.
        targets: list of str, answers to a wanted speedup or efficiency.
    """

    profile: object
    cluster: object
    device: object
    optimizer: str
    batches: list
    scalings: list
    hidings: list
    ranks_for_all_reduce: float
    settings: tuple
    targets: list

    def scaling(self, scheme):
        """Returns the `Scaling` of a scheme on the most GPUs."""
        return next(
            each
            for each in self.scalings
            if each.scheme == scheme and each.gpus == self.cluster.ranks
        )

    @property
    def best_batch(self):
        """`BatchOption` with the highest throughput."""
        return max(self.batches, key=lambda option: option.throughput)


def make(profile, cluster, device, gpus, optimizer="momentum", speedup=None, efficiency=None):
    """Makes a plan.

    Args:
        profile: `profile.Profile`, with the batch that is to be used.
        cluster: `Cluster`, whose number of ranks is replaced.
        device: `Device`.
        gpus: list of int, numbers of GPUs.
        optimizer: str, one of `memory.OPTIMIZER_COPIES`.
        speedup: float, wanted, or None.
        efficiency: float, wanted, or None.

    Returns:
        `Plan`.

    Raises:
        PlannerError: If the model does not fit the memory, or a value makes no sense.
    """
    cluster = dataclasses.replace(cluster, ranks=max(gpus))
    passes_s = profile.forward_s + profile.backward_s
    if not passes_s > 0:
        raise PlannerError(f"the profile {profile.name} takes no time; give its layers times")
    batches = _batches(profile, device, optimizer, max(gpus))
    scalings = [
        _scaling(profile, dataclasses.replace(cluster, ranks=each), scheme)
        for each in gpus
        for scheme in ("fifo", "p3")
    ]
    server_bandwidth = cluster.server_bandwidth or cluster.network.rank_bandwidth
    hidings = [
        Hiding(
            each,
            hiding.least_servers(profile.bytes, each, server_bandwidth, passes_s),
            hiding.bandwidth_for_all_reduce(profile.bytes, each, passes_s),
        )
        for each in gpus
    ]
    return Plan(
        profile=profile,
        cluster=cluster,
        device=device,
        optimizer=optimizer,
        batches=batches,
        scalings=scalings,
        hidings=hidings,
        ranks_for_all_reduce=hiding.ranks_for_all_reduce(
            profile.bytes, cluster.network.rank_bandwidth, passes_s
        ),
        settings=_fastest_settings(profile, cluster),
        targets=_targets(scalings, cluster.ranks, speedup, efficiency),
    )


def _batches(profile, device, optimizer, ranks):
    """The largest batch that fits, and halves of it, with the batch of the profile among them."""
    largest = memory.largest_batch(profile, device.memory_bytes, optimizer, ranks)
    sizes = {largest >> shift for shift in range(5)} | {min(profile.batch, largest)}
    options = []
    for batch in sorted(sizes - {0}):
        needed = memory.account(profile, batch, optimizer, ranks)
        left = device.memory_bytes - needed.bytes
        try:
            chosen = algorithms.choose(profile, batch, device, left)
        except PlannerError:
            continue  # the convolutions find no room beside the feature maps
        options.append(BatchOption(batch, needed, chosen, _step_s(profile, batch, chosen)))
    if not options:
        # Says what is too large.
        needed = memory.account(profile, 1, optimizer, ranks)
        algorithms.choose(profile, 1, device, device.memory_bytes - needed.bytes)
    return options


def _step_s(profile, batch, chosen):
    """Seconds of a step; convolutions gain as much over their time in the profile as over GEMM."""
    scaled = profile.at_batch(batch)
    convolutions_s = math.fsum(
        layer.forward_s + layer.backward_s
        for layer in scaled.layers
        if layer.convolution is not None
    )
    return scaled.compute_s - convolutions_s * (1 - chosen.time_ratio)


def _scaling(profile, cluster, scheme):
    result = simulate(profile, cluster, scheme)
    passes_s = profile.forward_s + profile.backward_s
    overhead_s = max(0.0, result.step_s - passes_s)
    ratio = scaling.overhead_ratio(overhead_s, passes_s)
    return Scaling(
        scheme=scheme,
        gpus=cluster.ranks,
        step_s=result.step_s,
        overhead_s=overhead_s,
        ratio=ratio,
        efficiency=scaling.efficiency(cluster.ranks, ratio),
        speedup=scaling.speedup(cluster.ranks, ratio),
        throughput_ratio=result.throughput * profile.compute_s / profile.batch,
    )


def _fastest_settings(profile, cluster):
    timed = [(simulate(profile, cluster, "p3", each).step_s, each) for each in _SETTINGS]
    seconds, fastest = min(timed, key=lambda each: each[0])
    return fastest, seconds


def _targets(scalings, most, speedup, efficiency):
    answers = []
    for each in scalings:
        if each.gpus != most:
            continue
        beginning = f"{each.scheme}, R_O = {each.ratio:.3g}:"
        if speedup is not None:
            try:
                gpus = scaling.gpus_for_speedup(speedup, each.ratio)
                answers.append(f"{beginning} a speedup of {speedup:g} takes {gpus} GPUs")
            except PlannerError as error:
                answers.append(f"{beginning} {error}")
        if efficiency is not None:
            gpus = scaling.gpus_for_efficiency(efficiency, each.ratio)
            count = "any number of GPUs keeps" if gpus == math.inf else f"up to {gpus} GPUs keep"
            needed = scaling.ratio_for_efficiency(most, efficiency)
            condition = "with any R_O" if needed == math.inf else f"with R_O up to {needed:.3g}"
            answers.append(
                f"{beginning} {count} an efficiency of {efficiency:g}; {most} do {condition}"
            )
    return answers


def describe_settings(settings):
    """Returns slices and credit as environment variables."""
    return (
        f"HVD_P3_SLICE_BYTES={settings.slice_bytes} and HVD_P3_CREDIT_BYTES="
        f"{settings.credit_bytes} (slices of {units.print_size(settings.slice_bytes)})"
    )
