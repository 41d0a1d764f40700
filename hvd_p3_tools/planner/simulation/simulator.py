"""Simulates a scheme, and measures one of its steps."""

import dataclasses
import math

from hvd_p3_tools.planner import bounds
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.simulation import slices
from hvd_p3_tools.planner.simulation.cluster import Settings
from hvd_p3_tools.planner.simulation.event_loop import EventLoop
from hvd_p3_tools.planner.simulation.fifo_engine import FifoEngine
from hvd_p3_tools.planner.simulation.priority_engine import PriorityEngine
from hvd_p3_tools.planner.simulation.rank import LayerWork, Mode, RankProcess
from hvd_p3_tools.planner.simulation.recording import Recorder
from hvd_p3_tools.planner.simulation.result import Result
from hvd_p3_tools.planner.simulation.transfer import AllReduceTransfer, ServerTransfer
from hvd_p3_tools.timeline.model import cut, length

SCHEMES = {
    "fifo": "stock Horovod: in the order of backpropagation, fused; all within the step",
    "immediate": "slices and priorities, all within the step",
    "p3": "slices and priorities, in the background; a layer's forward pass waits for that layer",
    "server": "as p3, with parameter servers instead of all-reduce",
    "shadow": "ShadowSync: weights are averaged in the background, and nothing waits",
}
_MODES = {"fifo": Mode.IMMEDIATE, "immediate": Mode.IMMEDIATE, "shadow": Mode.FREE}

# When the slowest rank begins a backward pass, all gradients of the step before are reduced,
# whatever the scheme. So from the second backward pass on, each step goes like the one before. What
# lies between the beginnings of the second and the third is measured, and that is all communication
# of one step.
_STEPS = 3
_SYNCS = 2


def simulate(profile, cluster, scheme, settings=None, record=False):
    """Simulates a few training steps.

    Example:

    ```python
    cluster = Cluster(ranks=4, network=Network(bandwidth=units.bandwidth("10Gbit/s")))
    simulate(builtin.load("vgg19"), cluster, "p3").step_s
    ```

    Args:
        profile: `profile.Profile`.
        cluster: `Cluster`.
        scheme: str, one of `SCHEMES`.
        settings: `Settings`; default: `Settings()`.
        record: bool. Whether to make a timeline: of the first rank, and of the last if there are
            stragglers.

    Returns:
        `Result`.

    Raises:
        PlannerError: If there is no such scheme, the model takes no time, or there are too many
            slices.
    """
    if scheme not in SCHEMES:
        raise PlannerError(f"the schemes are {', '.join(SCHEMES)}. Received: {scheme}")
    if not profile.compute_s > 0:
        raise PlannerError(f"the profile {profile.name} takes no time; give its layers times")
    simulation = _Simulation(profile, cluster, scheme, settings or Settings(), record)
    return simulation.run()


def lower_bound_s(profile, cluster, scheme="p3"):
    """Seconds of a step that no scheme that moves the same bytes can beat.

    Args:
        profile: `profile.Profile`.
        cluster: `Cluster`.
        scheme: str, one of `SCHEMES`.

    Returns:
        float: the longer of the slowest rank's computation and the communication of the busiest
        link. ShadowSync waits for no communication, so computation alone.
    """
    compute_s = profile.compute_s * cluster.groups()[-1][1]
    if scheme == "shadow":
        return compute_s
    if scheme == "server":
        network = dataclasses.replace(cluster.network, long_message_share=1.0)
        transfer = _transfer(dataclasses.replace(cluster, network=network), scheme)
        return bounds.step_s(compute_s, transfer.wire_s(profile.bytes))
    communication_s = bounds.communication_s(
        profile.bytes, cluster.ranks, cluster.network.rank_bandwidth
    )
    return bounds.step_s(compute_s, communication_s)


def _transfer(cluster, scheme):
    if scheme != "server":
        return AllReduceTransfer(cluster.network, cluster.ranks)
    servers = cluster.ranks if cluster.servers is None else cluster.servers
    return ServerTransfer(cluster.network, cluster.ranks, servers, cluster.server_bandwidth)


class _Simulation:
    def __init__(self, profile, cluster, scheme, settings, record):
        self._profile, self._cluster, self._scheme = profile, cluster, scheme
        self._settings = settings
        self._loop = EventLoop()
        gradients = [
            (f"{layer.name}/{gradient.name}", gradient.bytes)
            for layer in profile.layers
            for gradient in layer.gradients
        ]
        self._names = [name for name, _ in gradients]
        self._sizes = [size for _, size in gradients]
        plan = slices.plan(self._sizes, settings.slice_bytes, settings.fuse)
        self._recorder = Recorder(self._loop, self._names, self._sizes, plan) if record else None
        self._engine = self._make_engine(plan)
        self._processes = [self._make_process(factor) for _, factor in cluster.groups()]
        self._made = [0] * len(gradients)  # groups of ranks that have made each gradient
        self._left_of_sync = 0  # gradients
        self._sync_ends = []
        if record:
            for process, number in zip(self._processes, (0, cluster.ranks - 1), strict=False):
                self._recorder.add(process, number)

    def run(self):
        for process in self._processes:
            process.start()
        syncs = self._scheme == "shadow" and self._cluster.ranks > 1 and self._profile.bytes > 0
        if syncs:
            self._begin_sync()
        self._loop.run(lambda: self._all_is_known(syncs))
        return self._result(syncs)

    def _all_is_known(self, syncs):
        if syncs and len(self._sync_ends) < _SYNCS:
            return False
        if self._recorder is not None:
            return all(process.finished for process in self._processes)
        return all(len(process.backward_starts) == _STEPS for process in self._processes)

    def _make_engine(self, plan):
        transfer = _transfer(self._cluster, self._scheme)
        if self._scheme == "fifo":
            return FifoEngine(
                self._loop,
                self._sizes,
                transfer,
                self._settings.fusion_bytes,
                self._settings.cycle_s,
                self._reduced,
                self._recorder,
            )
        return PriorityEngine(
            self._loop,
            plan,
            transfer,
            self._settings.credit_bytes,
            self._settings.priorities,
            self._reduced,
            self._recorder,
        )

    def _make_process(self, factor):
        profile = self._profile
        layers = []
        tensor = 0
        for layer in profile.layers:
            count = len(layer.gradients)
            share = layer.bytes / profile.bytes if profile.bytes else 1 / len(profile.layers)
            layers.append(
                LayerWork(
                    factor * layer.forward_s,
                    factor * layer.backward_s,
                    factor * profile.update_s * share,
                    tuple(range(tensor, tensor + count)),
                )
            )
            tensor += count
        mode = _MODES.get(self._scheme, Mode.OVERLAPPED)
        input_s = factor * profile.input_s
        return RankProcess(self._loop, layers, input_s, mode, _STEPS, self._pushed, self._recorder)

    def _pushed(self, process, tensors):
        on_all = []
        for tensor in tensors:
            self._made[tensor] += 1
            if self._made[tensor] == len(self._processes):
                self._made[tensor] = 0
                on_all.append(tensor)
        if on_all:
            self._engine.ready(on_all)

    def _reduced(self, tensor):
        if self._scheme != "shadow":
            for process in self._processes:
                process.reduced(tensor)
            return
        self._left_of_sync -= 1
        if self._left_of_sync == 0:
            self._sync_ends.append(self._loop.now)
            if self._recorder is not None or len(self._sync_ends) < _SYNCS:
                # Not from within the engine's work on the last slice.
                self._loop.at(self._loop.now, self._begin_sync)

    def _begin_sync(self):
        if len(self._engine.sent) > slices.MOST_SLICES:
            raise PlannerError(
                f"a timeline of {self._scheme} would have more than {slices.MOST_SLICES} slices: "
                "the network is too fast for this model"
            )
        everything = list(range(len(self._sizes)))
        self._left_of_sync = len(everything)
        if self._recorder is not None:
            for process in self._processes:
                self._recorder.pushed(process, everything)
        self._engine.ready(everything)

    def _result(self, syncs):
        cluster = self._cluster
        slowest = self._processes[-1]
        step_s = _period(slowest.backward_starts)
        if not 0 < step_s < math.inf:
            raise PlannerError(
                f"a step of {self._profile.name} takes no time that can be told "
                f"({step_s} s of {slowest.backward_starts[-1]} s); check times and bandwidths"
            )
        period_s = _period(self._sync_ends[:_SYNCS]) if syncs else None
        # A step's communication lies between two backward passes, that of a synchronisation between
        # the ends of two.
        window = slowest.backward_starts[-2:] if period_s is None else self._sync_ends[:_SYNCS]
        sent = [each for each in self._engine.sent if window[0] <= each.start < window[1]]
        in_flight_s = length((each.start, each.end) for each in sent)
        wire_s = math.fsum(each.wire_s for each in sent)
        return Result(
            scheme=self._scheme,
            ranks=cluster.ranks,
            bandwidth=cluster.network.bandwidth,
            step_s=step_s,
            throughput=self._throughput(step_s),
            compute_s=self._profile.compute_s * cluster.groups()[-1][1],
            communication_s=in_flight_s,
            waited_s=length(cut(slowest.waits, *slowest.backward_starts[-2:])),
            link_use=wire_s / (window[1] - window[0]) if window[1] > window[0] else 0.0,
            bytes=sum(each.bytes for each in sent),
            slices=len(sent),
            lower_bound_s=lower_bound_s(self._profile, cluster, self._scheme),
            sync_period_s=period_s,
            timeline=self._timeline(),
        )

    def _throughput(self, step_s):
        batch = self._profile.batch
        if self._scheme != "shadow":
            return self._cluster.ranks * batch / step_s
        # Nobody waits for the slowest.
        groups = zip(self._cluster.groups(), self._processes, strict=True)
        return sum(
            count * batch / _period(process.backward_starts) for (count, _), process in groups
        )

    def _timeline(self):
        if self._recorder is None:
            return None
        network = self._cluster.network
        settings = {
            "scheme": self._scheme,
            "ranks": self._cluster.ranks,
            "bandwidth_bytes_per_s": network.bandwidth,
            "latency_s": network.latency_s,
            **dataclasses.asdict(self._settings),
        }
        return self._recorder.timeline(settings)


def _period(times):
    return times[-1] - times[-2]
