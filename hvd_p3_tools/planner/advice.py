"""Recommendations in words, with the numbers that they rest on.

Each is a simulation of the plan with one thing changed: the chosen scheme and settings stay, so
that no gain comes from settings that nobody would use.
"""

import dataclasses
import math

from hvd_p3_tools.planner import tuning, units
from hvd_p3_tools.planner.simulation.cluster import Settings

_WORTH_SAYING = 1.02  # times as fast


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """Something to do.

    Args:
        gain: float. By how many times the number of examples per second grows, by itself.
        text: str, one sentence or two.
        numbers: dict of str to the numbers that it rests on.
        necessary: bool. Whether the plan does not hold without it; `gain` is 1 then.
    """

    gain: float
    text: str
    numbers: dict
    necessary: bool = False


def recommend(plan):
    """Lists what to do: what is necessary, the scheme if it is stock Horovod, then the most useful.

    Args:
        plan: `plan.Plan`.

    Returns:
        List of `Recommendation`. Those that are not necessary gain at least 2 %, but for that to
        stay with stock Horovod. If there is none, one that says so, with a gain of 1.
    """
    first = [each for each in (_fitting_batch(plan), _stock(plan)) if each is not None]
    found = [_scheme(plan), _settings(plan), _batch(plan), _algorithms(plan)]
    found += [_bandwidth(plan), _fewer_gpus(plan), _input(plan)]
    worth = [each for each in found if each is not None and each.gain >= _WORTH_SAYING]
    if first or worth:
        return first + sorted(worth, key=lambda each: -each.gain)
    return [
        Recommendation(
            1.0,
            f"Nothing to change: of all that the planner can tell, nothing gains 2 % on "
            f"{plan.cluster.ranks} GPUs.",
            {"step_s": plan.chosen.step_s, "compute_s": plan.profile.compute_s},
        )
    ]


def _fitting_batch(plan):
    batch = plan.profile.batch
    if plan.wanted_batch == batch:
        return None
    memory_bytes = plan.device.memory_bytes
    return Recommendation(
        1.0,
        f"Use a batch of at most {batch} examples on each GPU: {plan.wanted_batch} do not fit "
        f"{units.print_size(memory_bytes)}.",
        {"batch": batch, "wanted_batch": plan.wanted_batch, "memory_bytes": memory_bytes},
        necessary=True,
    )


def _stock(plan):
    if plan.scheme != "fifo" or plan.cluster.ranks == 1:
        return None
    fifo, p3 = plan.scaling("fifo"), plan.scaling("p3")
    return Recommendation(
        p3.step_s / fifo.step_s,
        f"Stay with stock Horovod on {plan.cluster.ranks} GPUs: a step takes "
        f"{units.print_duration(fifo.step_s)}, and {units.print_duration(p3.step_s)} with "
        f"P3Callback and the best of the settings that were tried, {_described(plan)}.",
        {"fifo_step_s": fifo.step_s, "p3_step_s": p3.step_s, "gpus": plan.cluster.ranks},
    )


def _described(plan):
    return "the defaults" if plan.settings == Settings() else tuning.describe(plan.settings)


def _scheme(plan):
    if plan.scheme != "p3" or plan.cluster.ranks == 1:
        return None
    fifo, p3 = plan.scaling("fifo"), plan.scaling("p3")
    return Recommendation(
        fifo.step_s / p3.step_s,
        f"Train with P3Callback, with {_described(plan)}: a step takes "
        f"{units.print_duration(p3.step_s)} instead of {units.print_duration(fifo.step_s)} with "
        f"stock Horovod on {plan.cluster.ranks} GPUs.",
        {"fifo_step_s": fifo.step_s, "p3_step_s": p3.step_s, "gpus": plan.cluster.ranks},
    )


def _settings(plan):
    """Compared with the better of P3 with the defaults and stock Horovod."""
    if plan.scheme != "p3" or plan.settings == Settings():
        return None
    fifo_s, tuned_s = plan.scaling("fifo").step_s, plan.chosen.step_s
    return Recommendation(
        min(plan.default_p3_s, fifo_s) / tuned_s,
        f"Set {tuning.describe(plan.settings)}: a step takes {units.print_duration(tuned_s)} "
        f"instead of {units.print_duration(plan.default_p3_s)} with the defaults in the "
        "simulation. HVD_P3_AUTOTUNE=1 finds the best.",
        {
            "slice_bytes": plan.settings.slice_bytes,
            "credit_bytes": plan.settings.credit_bytes,
            "step_s": tuned_s,
            "default_step_s": plan.default_p3_s,
            "fifo_step_s": fifo_s,
        },
    )


def _batch(plan):
    """Another batch that fits: a larger one communicates less often."""
    candidates = [option for option in plan.batches if option.batch != plan.profile.batch]
    if not candidates:
        return None
    ranks = plan.cluster.ranks
    before = plan.simulate().throughput / ranks
    after, batch = max(
        (plan.simulate(option.profile).throughput / ranks, option.batch) for option in candidates
    )
    return Recommendation(
        after / before,
        f"Use a batch of {batch} examples on each GPU instead of {plan.profile.batch}: it fits the "
        f"memory, and a GPU trains {after:.4g} instead of {before:.4g} examples per second. See "
        "whether accuracy allows it.",
        {"batch": batch, "throughput": after, "throughput_before": before},
    )


def _algorithms(plan):
    """The times of the plan have them, if they come from FLOPs. Of measured times no one knows."""
    chosen = plan.batch.algorithms
    if plan.profile.flops_per_s is None or not chosen.chosen:
        return None
    count = sum(each.algorithm != "gemm" for each in chosen.chosen.values())
    before = dataclasses.replace(plan.profile, layers=_with_gemm(plan))
    gemm_step_s = plan.simulate(before).step_s
    most = chosen.most_workspace_bytes
    return Recommendation(
        gemm_step_s / plan.chosen.step_s,
        f"Leave {units.print_size(chosen.workspace_bytes)} of memory free for the workspace of "
        f"convolutions: cuDNN chooses their algorithms while TF_CUDNN_USE_AUTOTUNE is 1, as it is "
        f"by default, and FFT or Winograd for {count} of {len(chosen.chosen)} of them make a step "
        f"take {units.print_duration(plan.chosen.step_s)} instead of "
        f"{units.print_duration(gemm_step_s)} with GEMM alone. If TF_CUDNN_WORKSPACE_LIMIT_IN_MB "
        f"is set, it has to be {math.ceil(most / 2**20)} or more.",
        {
            "step_s": plan.chosen.step_s,
            "gemm_step_s": gemm_step_s,
            "workspace_bytes": chosen.workspace_bytes,
            "most_workspace_bytes": most,
        },
    )


def _with_gemm(plan):
    """The layers of the plan's profile, with the times of GEMM."""
    chosen = plan.batch.algorithms
    reverse = dataclasses.replace(chosen, chosen=chosen.gemm, gemm=chosen.chosen)
    return reverse.apply(plan.profile).layers


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
    after = plan.simulate(cluster=faster).step_s
    most = plan.ranks_for_all_reduce
    until = f" The network as it is does for {most:g} GPUs." if 1 < most < math.inf else ""
    return Recommendation(
        plan.chosen.step_s / after,
        f"Rent links of {units.print_bandwidth(wanted)} instead of "
        f"{units.print_bandwidth(network.bandwidth)}: then an all-reduce of "
        f"{units.print_size(plan.profile.bytes)} takes as long as both passes, and a step "
        f"{units.print_duration(after)} instead of {units.print_duration(plan.chosen.step_s)}. "
        f"With parameter servers, {hiding.least_servers} are needed.{until}",
        {
            "bandwidth": wanted,
            "step_s": after,
            "least_servers": hiding.least_servers,
            "ranks_for_all_reduce": None if most == math.inf else most,
        },
    )


def _fewer_gpus(plan):
    """A power of two, on which MPI's all-reduces take fewer messages one after another."""
    gpus = plan.cluster.ranks
    power = 1 << (gpus.bit_length() - 1)
    if plan.cluster.network.all_reduce != "mpi" or power == gpus:
        return None
    before = plan.simulate().throughput
    after = plan.simulate(cluster=dataclasses.replace(plan.cluster, ranks=power)).throughput
    return Recommendation(
        after / before,
        f"Use {power} GPUs instead of {gpus}: together they train {after:.4g} instead of "
        f"{before:.4g} examples per second, since an all-reduce of MPI takes {2 * (gpus - 1)} "
        f"messages one after another on {gpus} ranks, and {2 * (power.bit_length() - 1)} on "
        f"{power}.",
        {"gpus": power, "throughput": after, "throughput_before": before},
    )


def _input(plan):
    input_s = plan.profile.input_s
    if input_s == 0:
        return None
    after = plan.simulate(dataclasses.replace(plan.profile, input_s=0.0)).step_s
    return Recommendation(
        plan.chosen.step_s / after,
        f"Make the input faster (of tf.data: map with num_parallel_calls, interleave, cache): each "
        f"step waits {units.print_duration(input_s)} for it, although batches are prefetched.",
        {"input_s": input_s, "step_s": after, "step_s_before": plan.chosen.step_s},
    )
