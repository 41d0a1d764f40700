"""Answers the sizing questions for a model on a device and a network."""

import dataclasses

from hvd_p3_tools.planner import batches, hiding, scaling, targets, tuning
from hvd_p3_tools.planner.checks import require
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.simulation.cluster import Settings
from hvd_p3_tools.planner.simulation.simulator import simulate

SCHEMES = ("fifo", "p3")


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
    """All answers. They rest on one profile, one scheme and one choice of settings.

    Args:
        profile: `profile.Profile`, of the batch that is planned for and with its algorithms of
            convolutions.
        wanted_batch: int. That of `profile` is less if this does not fit the memory.
        cluster: `Cluster`, with the most GPUs.
        device: `Device`.
        optimizer: str.
        batches: list of `batches.BatchOption`, by batch; the last is the largest that fits.
        settings: `Settings` with which `p3` is the fastest of some on the most GPUs.
        default_p3_s: float, seconds of a step of `p3` with the default settings on these.
        scalings: list of `Scaling`, with these settings.
        scheme: str, the faster of `SCHEMES` on the most GPUs.
        hidings: list of `Hiding`.
        ranks_for_all_reduce: float, the most ranks whose all-reduce computation hides, or infinity.
        targets: list of `targets.Target`, for a wanted speedup or efficiency.
    """

    profile: object
    wanted_batch: int
    cluster: object
    device: object
    optimizer: str
    batches: list
    settings: Settings
    default_p3_s: float
    scalings: list
    scheme: str
    hidings: list
    ranks_for_all_reduce: float
    targets: list

    def scaling(self, scheme):
        """Returns the `Scaling` of a scheme on the most GPUs."""
        return next(
            each
            for each in self.scalings
            if each.scheme == scheme and each.gpus == self.cluster.ranks
        )

    @property
    def chosen(self):
        """`Scaling` of the chosen scheme on the most GPUs."""
        return self.scaling(self.scheme)

    @property
    def batch(self):
        """`BatchOption` that is planned for."""
        return next(option for option in self.batches if option.batch == self.profile.batch)

    @property
    def best_batch(self):
        """`BatchOption` with the highest throughput of one rank alone."""
        return max(self.batches, key=lambda option: option.throughput)

    def simulate(self, profile=None, cluster=None):
        """Simulates the chosen scheme with the chosen settings, and something else than planned.

        Args:
            profile: `profile.Profile`; default: that of the plan.
            cluster: `Cluster`; default: that of the plan.

        Returns:
            `Result`.
        """
        return simulate(
            profile or self.profile, cluster or self.cluster, self.scheme, self.settings
        )


def make(profile, cluster, device, gpus, optimizer="momentum", speedup=None, efficiency=None):
    """Makes a plan.

    Args:
        profile: `profile.Profile`, with the batch that is to be used. If its times come from FLOPs,
            those of convolutions are replaced by those of the algorithms that the batch leaves
            memory for.
        cluster: `Cluster`, whose number of ranks is replaced.
        device: `Device`.
        gpus: list of int, numbers of GPUs.
        optimizer: str, one of `memory.OPTIMIZER_COPIES`.
        speedup: float, wanted, or None.
        efficiency: float, wanted, or None.

    Returns:
        `Plan`. If the batch does not fit the memory, it is for the largest that does.

    Raises:
        PlannerError: If the model does not fit the memory, or a value makes no sense.
    """
    if speedup is not None:
        require(1 <= speedup <= targets.MOST_GPUS, "a speedup", _SPEEDUPS, speedup)
    if efficiency is not None:
        require(0 < efficiency <= 1, "an efficiency", "above 0 and at most 1", efficiency)
    if not profile.forward_s + profile.backward_s > 0:
        raise PlannerError(f"the profile {profile.name} takes no time; give its layers times")
    cluster = dataclasses.replace(cluster, ranks=max(gpus))
    found = batches.options(profile, device, optimizer, cluster.ranks)
    batch = min(profile.batch, found[-1].batch)
    planned = next(option.profile for option in found if option.batch == batch)
    settings, default_p3_s = tuning.fastest_settings(planned, cluster)
    scalings = [
        _scaling(planned, dataclasses.replace(cluster, ranks=each), scheme, settings)
        for each in gpus
        for scheme in SCHEMES
    ]
    fifo, p3 = (
        next(each for each in scalings if each.gpus == cluster.ranks and each.scheme == scheme)
        for scheme in SCHEMES
    )
    chosen = fifo if fifo.step_s < p3.step_s else p3
    passes_s = planned.forward_s + planned.backward_s
    server_bandwidth = cluster.server_bandwidth or cluster.network.rank_bandwidth
    return Plan(
        profile=planned,
        wanted_batch=profile.batch,
        cluster=cluster,
        device=device,
        optimizer=optimizer,
        batches=found,
        settings=settings,
        default_p3_s=default_p3_s,
        scalings=scalings,
        scheme=chosen.scheme,
        hidings=[
            Hiding(
                each,
                hiding.least_servers(planned.bytes, each, server_bandwidth, passes_s),
                hiding.bandwidth_for_all_reduce(planned.bytes, each, passes_s),
            )
            for each in gpus
        ],
        ranks_for_all_reduce=hiding.ranks_for_all_reduce(
            planned.bytes, cluster.network.rank_bandwidth, passes_s
        ),
        targets=_targets(planned, cluster, chosen, settings, speedup, efficiency),
    )


_SPEEDUPS = f"at least 1 and at most {targets.MOST_GPUS}"


def _scaling(profile, cluster, scheme, settings):
    result = simulate(profile, cluster, scheme, settings)
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


def _targets(profile, cluster, chosen, settings, speedup, efficiency):
    search = targets.Search(profile, cluster, chosen.scheme, settings)
    way = f"simulated with {chosen.scheme}"
    answers = []
    if speedup is not None:
        answers.append(targets.for_speedup(search, speedup, way, chosen.ratio))
    if efficiency is not None:
        answers.append(targets.for_efficiency(search, efficiency, way, chosen.ratio, cluster.ranks))
    return answers
