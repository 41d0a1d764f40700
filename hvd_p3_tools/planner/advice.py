"""Recommendations in words, with the numbers that they rest on."""

import dataclasses
import math

from hvd_p3_tools.planner import bounds, units
from hvd_p3_tools.planner.plan import describe_settings
from hvd_p3_tools.planner.simulation.cluster import Settings
from hvd_p3_tools.planner.simulation.simulator import simulate

_WORTH_SAYING = 1.02  # times as fast


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """Something to do.

    Args:
        gain: float. By how many times the number of examples per second grows, by itself.
        text: str, one sentence.
        numbers: dict of str to the numbers that it rests on.
    """

    gain: float
    text: str
    numbers: dict


def recommend(plan):
    """Lists what to do, the most useful first.

    Args:
        plan: `plan.Plan`.

    Returns:
        List of `Recommendation`, each of which gains at least 2 %. If there is none, one that says
        so, with a gain of 1.
    """
    found = [_scheme(plan), _batch(plan), _algorithms(plan), _bandwidth(plan)]
    found += [_settings(plan), _input(plan)]
    worth = [each for each in found if each is not None and each.gain >= _WORTH_SAYING]
    if not worth:
        bound = plan.scaling("p3")
        return [
            Recommendation(
                1.0,
                f"Nothing to change: with {plan.cluster.ranks} GPUs communication is hidden as it "
                "is, and the batch is as good as any that fits.",
                {"step_s": bound.step_s, "compute_s": plan.profile.compute_s},
            )
        ]
    return sorted(worth, key=lambda each: -each.gain)


def _scheme(plan):
    fifo, p3 = plan.scaling("fifo"), plan.scaling("p3")
    return Recommendation(
        fifo.step_s / p3.step_s,
        f"Train with P3Callback: a step takes {units.print_duration(p3.step_s)} instead of "
        f"{units.print_duration(fifo.step_s)} with stock Horovod on {plan.cluster.ranks} GPUs.",
        {"fifo_step_s": fifo.step_s, "p3_step_s": p3.step_s, "gpus": plan.cluster.ranks},
    )


def _p3_throughput(plan, profile):
    return profile.batch / simulate(profile, plan.cluster, "p3").step_s


def _batch(plan):
    """Another batch, compared with P3 on the network: a larger one communicates less often."""
    candidates = [option.batch for option in plan.batches if option.batch != plan.profile.batch]
    if not candidates:
        return None
    before = _p3_throughput(plan, plan.profile)
    after, batch = max(
        (_p3_throughput(plan, plan.profile.at_batch(each)), each) for each in candidates
    )
    return Recommendation(
        after / before,
        f"Use a batch of {batch} examples on each GPU instead of {plan.profile.batch}: it fits the "
        f"memory, and a GPU trains {after:.4g} instead of {before:.4g} examples per second. See "
        "whether accuracy allows it.",
        {"batch": batch, "throughput": after, "throughput_before": before},
    )


def _algorithms(plan):
    """Convolutions, on one GPU; where the network is the limit, they gain less."""
    own = [option for option in plan.batches if option.batch == plan.profile.batch]
    if not own or not own[0].algorithms.chosen:
        return None
    option = own[0]
    chosen = option.algorithms
    gain_alone = plan.profile.compute_s / option.step_s
    p3 = plan.scaling("p3")
    saved = plan.profile.compute_s - option.step_s
    # What cannot be hidden stays.
    limit = max(p3.step_s - saved, _communication_s(plan))
    count = len(chosen.chosen) - sum(each.algorithm == "gemm" for each in chosen.chosen.values())
    return Recommendation(
        p3.step_s / limit if limit > 0 else gain_alone,
        f"Let {count} of {len(chosen.chosen)} convolutions use FFT or Winograd, as in the table: "
        f"they take {units.print_duration(chosen.seconds)} a step instead of "
        f"{units.print_duration(chosen.gemm_s)}, with a workspace of "
        f"{units.print_size(chosen.workspace_bytes)}.",
        {
            "seconds": chosen.seconds,
            "gemm_s": chosen.gemm_s,
            "workspace_bytes": chosen.workspace_bytes,
        },
    )


def _communication_s(plan):
    cluster = plan.cluster
    return bounds.communication_s(plan.profile.bytes, cluster.ranks, cluster.network.rank_bandwidth)


def _bandwidth(plan):
    """A faster network, or servers, if computation cannot hide what is sent."""
    hiding = next(each for each in plan.hidings if each.gpus == plan.cluster.ranks)
    network = plan.cluster.network
    if hiding.bandwidth <= network.rank_bandwidth:
        return None
    factor = hiding.bandwidth / network.rank_bandwidth
    wanted = network.bandwidth * factor
    faster = dataclasses.replace(
        plan.cluster, network=dataclasses.replace(network, bandwidth=wanted)
    )
    p3 = plan.scaling("p3")
    after = simulate(plan.profile, faster, "p3").step_s
    most = plan.ranks_for_all_reduce
    until = f" The network as it is does for {most:g} GPUs." if 1 < most < math.inf else ""
    return Recommendation(
        p3.step_s / after,
        f"Rent links of {units.print_bandwidth(wanted)} instead of "
        f"{units.print_bandwidth(network.bandwidth)}: then an all-reduce of "
        f"{units.print_size(plan.profile.bytes)} takes as long as both passes, and a step "
        f"{units.print_duration(after)}. With parameter servers, {hiding.least_servers} are needed."
        f"{until}",
        {
            "bandwidth": wanted,
            "step_s": after,
            "least_servers": hiding.least_servers,
            "ranks_for_all_reduce": None if most == math.inf else most,
        },
    )


def _settings(plan):
    fastest, seconds = plan.settings
    if fastest == Settings():
        return None
    default = plan.scaling("p3").step_s
    return Recommendation(
        default / seconds,
        f"Set {describe_settings(fastest)}: a step takes {units.print_duration(seconds)} instead "
        f"of {units.print_duration(default)} in the simulation. HVD_P3_AUTOTUNE=1 finds the best.",
        {
            "slice_bytes": fastest.slice_bytes,
            "credit_bytes": fastest.credit_bytes,
            "step_s": seconds,
            "default_step_s": default,
        },
    )


def _input(plan):
    input_s = plan.profile.input_s
    step_s = plan.scaling("p3").step_s
    return Recommendation(
        step_s / (step_s - input_s) if step_s > input_s else 1.0,
        f"Prefetch the input (tf.data's prefetch): each step waits {units.print_duration(input_s)} "
        "for it.",
        {"input_s": input_s},
    )
