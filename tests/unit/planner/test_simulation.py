"""The simulator: schedules worked by hand."""

import dataclasses
import time

import planner_models as models
import pytest

from hvd_p3_tools.planner import builtin, network
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.network import Network
from hvd_p3_tools.planner.simulation.cluster import Cluster, Settings
from hvd_p3_tools.planner.simulation.simulator import SCHEMES, simulate
from hvd_p3_tools.planner.simulation.sweep import sweep

# Slices of 100 kB, each of which takes 0.1 s on two ranks with 1 MB/s; one in flight.
_SLICES = Settings(slice_bytes=100_000, credit_bytes=100_000, cycle_s=0.0)


def _step_s(profile, scheme, settings=_SLICES, **cluster):
    return simulate(profile, models.cluster(**cluster), scheme, settings).step_s


def test_schedules_worked_by_hand():
    # Two layers with 0.2 s forward and 0.3 s backward each; 0.2 s and 0.5 s of communication.
    profile = models.profile((0.2, 0.3, 200_000), (0.2, 0.3, 500_000))
    # The backward pass takes 0 to 0.6 s. The last layer's gradient is sent from 0.3 to 0.8 s, then
    # the first layer's to 1.0 s. Then the forward pass: 1.4 s.
    assert _step_s(profile, "fifo") == pytest.approx(1.4)
    # At 0.6 s the first layer's slices go before the rest: to 0.8 s, when its forward pass begins,
    # to 1.0 s. The last layer's other two slices are sent from 0.8 to 1.0 s: no more waits.
    assert _step_s(profile, "p3") == pytest.approx(1.2)
    # The same order, but both passes wait until 1.0 s.
    assert _step_s(profile, "immediate") == pytest.approx(1.4)
    # Without priorities, in the background: the first layer's forward pass begins at 1.0 s.
    in_order = dataclasses.replace(_SLICES, priorities=False)
    assert _step_s(profile, "p3", in_order) == pytest.approx(1.4)
    # Nothing waits.
    assert _step_s(profile, "shadow") == pytest.approx(1.0)


def test_numbers_of_a_step():
    profile = models.profile((0.2, 0.3, 200_000), (0.2, 0.3, 500_000))
    result = simulate(profile, models.cluster(), "p3", _SLICES)
    assert (result.bytes, result.slices) == (700_000, 7)
    # From 0.3 to 1.0 s after the beginning of the backward pass, of which the rank waits 0.2 s.
    assert result.communication_s == pytest.approx(0.7)
    assert result.waited_s == pytest.approx(0.2)
    assert result.hidden_share == pytest.approx(1 - 0.2 / 0.7)
    assert result.link_use == pytest.approx(0.7 / 1.2)
    assert result.throughput == pytest.approx(2 * 8 / 1.2)
    assert result.lower_bound_s == pytest.approx(1.0)


def test_input_and_updates_take_their_time():
    profile = models.profile((0.1, 0.2, 4), input_s=0.05, update_s=0.01)
    for scheme in SCHEMES:
        assert _step_s(profile, scheme, ranks=1) == pytest.approx(0.36)


def test_credit_bounds_what_an_urgent_slice_waits_for():
    # When the first layer's gradient is ready at 0.4 s, the last layer's slices of 0.1 s that have
    # started are sent first: with a credit of one slice up to 0.5 s, of three up to 0.7 s.
    profile = models.profile((0.1, 0.25, 100_000), (0.1, 0.15, 1_000_000))
    small = simulate(profile, models.cluster(), "p3", _SLICES, record=True)
    large = dataclasses.replace(_SLICES, credit_bytes=300_000)
    large = simulate(profile, models.cluster(), "p3", large, record=True)

    def wait(result):
        (first, *_) = (
            each
            for each in result.timeline.ranks[0].reductions
            if each.tensor.startswith("layer_0")
        )
        return (first.started - first.ready) / 1e9, (first.finished - first.ready) / 1e9

    # Slices begin at 0.15 + 0.1 k: that of 0.35 s ends 0.05 s after 0.4 s.
    assert wait(small) == pytest.approx((0.05, 0.15))
    # Three slices are in flight, so its turn on the link comes after two more.
    assert wait(large) == pytest.approx((0.05, 0.35))


def test_fusion_threshold():
    # Three gradients at once: one buffer; or three, with the latency of each, 2 messages of 0.1 s,
    # after a negotiation of 2 messages.
    profile = models.profile((0.0, 1.0, 1000, 1000, 1000))
    together = _step_s(profile, "fifo", Settings(cycle_s=0.0), latency_s=0.1)
    assert together == pytest.approx(1.0 + 0.2 + 0.2 + 0.003)
    alone = _step_s(profile, "fifo", Settings(fusion_bytes=0, cycle_s=0.0), latency_s=0.1)
    assert alone == pytest.approx(1.0 + 0.2 + 3 * 0.2 + 0.003)


def test_cycle_time():
    # Ready at 1.0 s, while cycles begin at multiples of 0.3 s from the end of the last reduction.
    profile = models.profile((0.0, 1.0, 100_000))
    slow = Settings(cycle_s=0.3)
    first, later = (
        (each.started - each.ready) / 1e9
        for each in simulate(profile, models.cluster(), "fifo", slow, record=True)
        .timeline.ranks[0]
        .reductions[:2]
    )
    # Four cycles of 0.3 s from 0 on; then from 1.5 s on, the end of the cycle that began at 1.2 s.
    assert first == pytest.approx(0.2)
    # The second is ready at 2.3 s; cycles begin at 1.5, 1.8, 2.1 and 2.4 s.
    assert later == pytest.approx(0.1)


def test_negotiation_of_a_slice():
    # One round to know that it is ready and the all-reduce: on 4 ranks 2 + 4 messages of 10 ms, and
    # 1.5 times the bytes.
    profile = models.profile((0.0, 1.0, 100_000))
    assert _step_s(profile, "p3", ranks=4, latency_s=0.01) == pytest.approx(1.0 + 0.06 + 0.15)


def test_parameter_servers():
    profile = models.profile((0.0, 1.0, 100_000))
    # On the ranks' machines, one each: as an all-reduce, 2 * 3/4 of the bytes on each link.
    assert _step_s(profile, "server", ranks=4) == pytest.approx(1.0 + 0.15)
    # A single one, on a rank's machine: 3 times the bytes come to it.
    assert _step_s(profile, "server", ranks=4, servers=1) == pytest.approx(1.0 + 0.3)
    # Two with machines of their own: each gets 4 times half of the bytes, 0.2 s, and sends as many.
    own = {"ranks": 4, "servers": 2, "server_bandwidth": 1e6}
    assert _step_s(profile, "server", **own) == pytest.approx(1.0 + 0.4)
    # Fast ones: the ranks' links are the limit.
    own = {"ranks": 4, "servers": 2, "server_bandwidth": 1e9}
    assert _step_s(profile, "server", **own) == pytest.approx(1.0 + 0.2)


def test_contention():
    profile = models.profile((0.0, 1.0, 100_000))
    assert _step_s(profile, "p3", background=0.5) == pytest.approx(1.2)
    assert _step_s(profile, "p3", ranks_per_link=3) == pytest.approx(1.3)
    assert _step_s(profile, "p3", oversubscription=4) == pytest.approx(1.4)
    # Messages of 50 kB, half of the slice, at a quarter of the bandwidth.
    slow = {"long_message_share": 0.25, "long_message_bytes": 40_000}
    assert _step_s(profile, "p3", **slow) == pytest.approx(1.4)
    fast = {"long_message_share": 0.25, "long_message_bytes": 50_000}
    assert _step_s(profile, "p3", **fast) == pytest.approx(1.1)


def test_all_wait_for_stragglers_but_with_shadow():
    profile = models.profile((0.1, 0.2, 4), batch=3)
    slow = {"ranks": 4, "bandwidth": 1e12, "stragglers": 1, "straggler_factor": 2.0}
    for scheme in ("fifo", "immediate", "p3", "server"):
        result = simulate(profile, models.cluster(**slow), scheme, _SLICES)
        assert result.step_s == pytest.approx(0.6)
        assert result.throughput == pytest.approx(4 * 3 / 0.6)
    result = simulate(profile, models.cluster(**slow), "shadow", _SLICES)
    assert result.throughput == pytest.approx(3 * 3 / 0.3 + 3 / 0.6)


def test_shadow_synchronises_all_the_time():
    profile = models.profile((0.1, 0.2, 500_000))
    result = simulate(profile, models.cluster(), "shadow", _SLICES)
    assert result.sync_period_s == pytest.approx(0.5)
    assert result.link_use == pytest.approx(1.0)
    assert result.bytes == 500_000


@pytest.mark.parametrize(
    ("all_reduce", "ranks", "messages"),
    [
        ("mpi", 2, 2),
        ("mpi", 8, 6),  # 3 of halving, 3 of doubling
        ("mpi", 7, 12),  # 6 around a ring, twice
        ("tree", 8, 6),
        ("tree", 5, 6),  # as deep as one of 8
        ("ring", 8, 14),
        ("ring", 1, 0),
    ],
)
def test_messages_of_an_all_reduce_one_after_another(all_reduce, ranks, messages):
    made = Network(1e9, latency_s=1e-3, all_reduce=all_reduce)
    assert network.all_reduce_latency_s(made, ranks) == pytest.approx(messages * 1e-3)


def test_pieces_of_a_tree_are_short():
    slow = {"long_message_share": 0.5, "long_message_bytes": 1000}
    # On 4 ranks halves of 4000 bytes are long, and quarters are not; a tree sends as it likes.
    seconds = {
        kind: network.all_reduce_wire_s(Network(1e3, all_reduce=kind, **slow), 4, 4000)
        for kind in network.ALL_REDUCES
    }
    assert seconds == {"mpi": 12.0, "tree": 6.0, "ring": 6.0}


def test_a_hundred_layers_on_4096_ranks():
    """The time is not asserted, but that it does not grow with the ranks is: by symmetry as many
    events happen as on 4."""
    resnet50 = builtin.load("resnet50")
    assert len(resnet50.layers) > 100
    slices = set()
    for ranks in (4, 4096):
        began = time.perf_counter()
        result = simulate(resnet50, Cluster(ranks, Network(1.25e10)), "p3")
        slices.add(result.slices)
        print(f"{ranks} ranks: {time.perf_counter() - began:.2f} s")
    assert len(slices) == 1


def test_sweep_is_in_order():
    results = sweep(
        builtin.load("alexnet"), models.cluster(), ["fifo", "p3"], [2, 4], [1e9, 2e9], _SLICES
    )
    assert [(each.ranks, each.bandwidth, each.scheme) for each in results] == [
        (ranks, bandwidth, scheme)
        for ranks in (2, 4)
        for bandwidth in (1e9, 2e9)
        for scheme in ("fifo", "p3")
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Network(0.0), "bandwidth must be finite and greater than 0"),
        (lambda: Network(1e9, latency_s=-1), "latency_s must be"),
        (lambda: Network(1e9, background=1.0), "background must be"),
        (lambda: Network(1e9, all_reduce="star"), "all_reduce must be of mpi, tree, ring"),
        (lambda: Network(1e9, oversubscription=1e300), "must leave 1 byte/s to each rank"),
        (lambda: Cluster(0, Network(1e9)), "ranks must be from 1"),
        (lambda: Cluster(4, Network(1e9), stragglers=5), "stragglers must be from 0"),
        (lambda: Cluster(4, Network(1e9), 1, 0.5), "straggler_factor must be at least 1"),
        (lambda: Settings(slice_bytes=0), "slice_bytes must be at least 1"),
        (
            lambda: simulate(builtin.load("alexnet"), models.cluster(servers=3), "server"),
            "servers must be at most the number of ranks",
        ),
        (lambda: simulate(builtin.load("alexnet"), models.cluster(), "x"), "the schemes are fifo"),
    ],
)
def test_what_makes_no_sense_is_named(make, message):
    with pytest.raises(PlannerError, match=message):
        make()
