"""Plans and recommendations, with numbers worked by hand."""

import dataclasses

import planner_models as models
import pytest

from hvd_p3_tools.planner import advice, algorithms, builtin, convolution, memory, plan, tuning
from hvd_p3_tools.planner.device import Device
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.model_tables import Convolution
from hvd_p3_tools.planner.profile import Gradient, Layer, Profile
from hvd_p3_tools.planner.simulation.cluster import Settings
from hvd_p3_tools.planner.simulation.simulator import simulate

_SLICE = 120 * 1024  # bytes, the default
_BANDWIDTH = 10 * _SLICE  # so that a slice takes 0.1 s on two ranks
_CYCLE = 2e-3  # what the cycles of stock Horovod may add to a step


def _one_layer(slices=1, batch=8, **more):
    """0.1 s forward, 0.2 s backward; each slice is 0.1 s of communication, which nothing hides."""
    return models.profile((0.1, 0.2, slices * _SLICE), batch=batch, activation_bytes=1000, **more)


def _device(profile, batch, ranks=2):
    """A device with memory for a batch and no more."""
    return Device(memory_bytes=memory.needed_bytes(profile, batch, "momentum", ranks))


def _make(profile, batch=None, gpus=(2,), **cluster):
    cluster = models.cluster(**({"bandwidth": _BANDWIDTH} | cluster))
    device = _device(profile, batch or profile.batch, max(gpus))
    return plan.make(profile, cluster, device, list(gpus))


def _found(made, words):
    """The recommendation with some words, or None."""
    return next((each for each in advice.recommend(made) if words in each.text), None)


def test_scaling_and_hiding():
    made = _make(_one_layer())
    p3 = made.scaling("p3")
    # 0.3 s of computation, then 0.1 s in which nothing can be computed.
    assert p3.step_s == pytest.approx(0.4)
    assert (p3.overhead_s, p3.ratio) == (pytest.approx(0.1), pytest.approx(1 / 3))
    # (1 + 1/3) / (1 + 2/3) = 0.8, and twice that.
    assert (p3.efficiency, p3.speedup) == (pytest.approx(0.8), pytest.approx(1.6))
    # 16 examples in 0.4 s over 8 in 0.3 s.
    assert p3.throughput_ratio == pytest.approx(1.5)
    (hidden,) = made.hidings
    # Two workers move 2 * 2 slices of 0.1 s in 0.3 s: 1.33 servers.
    assert hidden.least_servers == 2
    # A slice in 0.3 s.
    assert hidden.bandwidth == pytest.approx(_SLICE / 0.3)
    # 2 S / (2 S - B T) with S = 1 and B T = 3 slices: nothing is in excess.
    assert made.ranks_for_all_reduce == float("inf")


@pytest.mark.parametrize(
    ("model", "gibibytes", "batch"),
    [("vgg19", 16, 176), ("alexnet", 16, 3120), ("inception_v3", 16, 116), ("resnet50", 24, 159)],
)
def test_largest_batch_of_builtin_models(model, gibibytes, batch):
    """What fits is planned for, and one more is not."""
    device = Device(memory_bytes=gibibytes * 2**30)
    for wanted in (batch, batch + 1):
        profile = builtin.load(model, wanted, device)
        made = plan.make(profile, models.cluster(bandwidth=1e12), device, [2])
        assert (made.profile.batch, made.wanted_batch) == (batch, wanted)
        assert made.batches[-1].batch == batch
        for option in made.batches:
            used = option.memory.bytes + option.algorithms.workspace_bytes
            assert used <= device.memory_bytes
        first = advice.recommend(made)[0]
        assert first.necessary == (wanted > batch)
        if first.necessary:
            assert f"at most {batch} examples" in first.text
            assert (first.gain, first.numbers["wanted_batch"]) == (1.0, wanted)


def test_one_baseline():
    """The header, the table of batches, and the simulation have the same times."""
    made = plan.make(builtin.load("resnet50"), models.cluster(bandwidth=1e12), Device(), [1])
    assert made.batch.step_s == made.profile.compute_s
    assert made.chosen.step_s == pytest.approx(made.profile.compute_s, rel=1e-6)
    best = _found(made, "Use a batch of")
    table = {option.batch: option.throughput for option in made.batches}
    assert best.numbers["batch"] == max(table, key=table.get)
    assert best.gain == pytest.approx(table[best.numbers["batch"]] / table[32], rel=1e-6)


def test_train_with_p3():
    # Slices of the last layer are sent from 0.3 s after the beginning of the backward pass on. At
    # 0.65 s the first layer's gradient is made: 3 are sent, 6 are in flight, as 768 KiB of
    # credit hold, so that its 2 slices are the 10th and 11th, up to 1.4 s. All 22 are sent at
    # 2.5 s.
    profile = models.profile(
        (0.2, 0.35, 2 * _SLICE), (0.2, 0.3, 20 * _SLICE), activation_bytes=1000
    )
    made = _make(profile)
    assert made.scheme == "p3"
    # Stock Horovod begins the forward pass of 0.4 s then, P3 only that of the last layer.
    assert made.scaling("fifo").step_s == pytest.approx(2.9, abs=_CYCLE)
    assert made.scaling("p3").step_s == pytest.approx(2.7)
    assert made.settings == Settings()
    assert _found(made, "Train with P3Callback").gain == pytest.approx(2.9 / 2.7, abs=_CYCLE)
    # 2.2 s of communication in the 1.05 s of both passes. Then slices take 1.05 / 22 = 0.0477 s;
    # all are sent from 0.3 to 1.35 s, and the last layer's forward pass takes 0.2 s.
    faster = _found(made, "Rent links")
    assert faster.numbers["bandwidth"] == pytest.approx(_BANDWIDTH * 2.2 / 1.05)
    assert faster.gain == pytest.approx(2.7 / 1.55)
    # Both workers send and receive 2.2 s of bytes in 1.05 s: 2 * 2 * 2.2 / 1.05 = 8.4.
    assert faster.numbers["least_servers"] == 9


def test_a_larger_batch():
    made = _make(_one_layer(), batch=16)
    # 0.3 and 0.6 s of computation, and 0.1 s of communication: 20 and 22.86 examples per second.
    found = _found(made, "Use a batch of 16")
    assert found.gain == pytest.approx((16 / 0.7) / (8 / 0.4))
    assert found.numbers["throughput"] == pytest.approx(16 / 0.7)
    assert not found.necessary


def test_faster_input():
    # Waiting 0.25 s for input hides the 0.1 s of communication: 0.55 s. Without, they show: 0.4 s.
    found = _found(_make(_one_layer(input_s=0.25)), "Make the input faster")
    assert found.gain == pytest.approx(0.55 / 0.4)
    assert found.numbers["input_s"] == 0.25
    # 0.1 s hide just as much as they take.
    assert _found(_make(_one_layer(input_s=0.1)), "Make the input faster") is None


def test_stay_with_stock_horovod():
    # One buffer of 128 MiB, the fusion threshold, on a network that costs latency alone: 0.1 s.
    # On 3 ranks a round is 2 messages and an all-reduce 4. Stock Horovod: 2 rounds, 0.4 s more.
    profile = models.profile((0.4, 0.5, 128 * 2**20), activation_bytes=1000)
    made = _make(profile, gpus=[3], ranks=3, bandwidth=1e15, latency_s=0.1)
    assert made.scaling("fifo").step_s == pytest.approx(0.9 + 0.4 + 0.4, abs=_CYCLE)
    # P3 at best has 64 MiB of credit, which hold half: a round, and an all-reduce of as many slices
    # at once. The round that follows knows of the first that is done, the next of all others, which
    # then start.
    assert made.settings.credit_bytes == 64 * 2**20
    assert made.scaling("p3").step_s == pytest.approx(0.9 + 0.2 + 0.4 + 2 * 0.2 + 0.4, rel=1e-6)
    first = advice.recommend(made)[0]
    assert first.text.startswith("Stay with stock Horovod on 3 GPUs: a step takes 1.7")
    assert "2.3 s with P3Callback" in first.text
    assert first.gain == pytest.approx(2.3 / 1.7, rel=_CYCLE)
    # Nothing else is compared with what is slower than that.
    assert made.scheme == "fifo"
    assert _found(made, "HVD_P3_AUTOTUNE") is None
    assert _found(made, "Train with P3Callback") is None


def test_fewer_gpus_are_faster_where_all_reduces_of_powers_of_two_are_short():
    profile = models.profile((0.1, 0.11, 4), activation_bytes=1000)
    latency = {"ranks": 3, "bandwidth": 1e12, "latency_s": 0.1}
    # On 3 ranks 2 messages of a round and 4 of an all-reduce: 0.81 s for 24 examples. On 2 ranks
    # 1 and 2: 0.51 s for 16.
    found = _found(_make(profile, gpus=[3], **latency), "Use 2 GPUs instead of 3")
    assert found.numbers["throughput_before"] == pytest.approx(24 / 0.81)
    assert found.gain == pytest.approx((16 / 0.51) / (24 / 0.81))
    # A tree of 3 ranks is as deep as one of 4.
    assert _found(_make(profile, gpus=[3], all_reduce="tree", **latency), "GPUs instead") is None


def test_fastest_settings_are_the_fastest_of_those_tried():
    layers = (0.05, 0.1, 20_000_000), (0.05, 0.1, 60_000_000)
    profile = models.profile(*layers, activation_bytes=1000)
    network = {"ranks": 8, "bandwidth": 1e9, "latency_s": 1e-3}
    made = _make(profile, gpus=[8], **network)
    cluster = models.cluster(**network)
    steps = {each: simulate(profile, cluster, "p3", each).step_s for each in tuning.CANDIDATES}
    assert made.settings == min(steps, key=steps.get) != Settings()
    assert made.default_p3_s == steps[Settings()]
    # The gain is over the better of the defaults and stock Horovod.
    fifo_s = simulate(profile, cluster, "fifo").step_s
    assert fifo_s < made.default_p3_s
    found = _found(made, "HVD_P3_AUTOTUNE")
    assert found.gain == pytest.approx(fifo_s / steps[made.settings])
    assert f"HVD_P3_SLICE_BYTES={made.settings.slice_bytes}" in found.text


def _convolutional():
    """A convolution of batch 2 with the operations of GEMM, of which one rank does nothing else."""
    geometry = Convolution((56, 56, 256), (3, 3), (1, 1), (56, 56, 256))
    flops = 2 * 9 * 256 * 256 * 56**2
    seconds = 2 * flops / 1e9
    kernel = (Gradient("kernel", 4 * 9 * 256 * 256),)
    layer = Layer("block", seconds, 2 * seconds, kernel, 1000, flops, geometry)
    return Profile("one", "A test.", 2, (layer,), flops_per_s=1e9), geometry


def test_algorithms_that_leave_memory_allows():
    profile, geometry = _convolutional()
    device = Device(flops_per_s=1e9, memory_bytes_per_s=1e30, memory_bytes=1e12)
    made = plan.make(profile, models.cluster(ranks=1, bandwidth=1e12), device, [1])
    gemm, fft, winograd = convolution.choices(geometry, 2, device)
    best = min(fft, winograd, key=lambda choice: choice.seconds)
    # Reads and writes take no time, so GEMM takes what the profile says; see test_memory.py.
    assert made.batch.gemm_s == pytest.approx(gemm.seconds)
    assert made.profile.compute_s == pytest.approx(best.seconds)
    found = _found(made, "TF_CUDNN_USE_AUTOTUNE")
    assert found.gain == pytest.approx(gemm.seconds / best.seconds)
    assert found.numbers["workspace_bytes"] == best.workspace_bytes


def test_measured_times_stay_as_they_are():
    profile, geometry = _convolutional()
    measured = dataclasses.replace(profile, flops_per_s=None)
    device = Device(flops_per_s=1e9, memory_bytes_per_s=1e30, memory_bytes=1e12)
    made = plan.make(measured, models.cluster(ranks=1, bandwidth=1e12), device, [1])
    assert made.profile == measured
    assert made.batch.gemm_s == made.profile.compute_s
    smallest = min(convolution.choices(geometry, 2, device), key=lambda each: each.workspace_bytes)
    assert made.batch.algorithms.workspace_bytes == smallest.workspace_bytes
    assert _found(made, "CUDNN") is None


def test_times_of_algorithms_leave_the_overhead():
    profile, geometry = _convolutional()
    profile = dataclasses.replace(profile, layer_overhead_s=0.5)
    device = Device(flops_per_s=1e9, memory_bytes_per_s=1e30)
    gemm, *_, winograd = convolution.choices(geometry, 2, device)
    chosen = algorithms.Algorithms({"block": winograd}, {"block": gemm})
    (before,), (after,) = profile.layers, chosen.apply(profile).layers
    ratio = winograd.seconds / gemm.seconds
    assert after.forward_s == pytest.approx(0.5 + (before.forward_s - 0.5) * ratio)
    assert after.backward_s == pytest.approx(0.5 + (before.backward_s - 0.5) * ratio)


def test_nothing_to_change():
    made = _make(_one_layer(), bandwidth=1e12)
    (only,) = advice.recommend(made)
    assert only.text.startswith("Nothing to change")
    assert only.gain == 1.0


def test_wishes_that_make_no_sense():
    profile, cluster = _one_layer(), models.cluster()
    for wish, message in (
        ({"speedup": 0.5}, "a speedup must be at least 1"),
        ({"speedup": float("nan")}, "a speedup must be at least 1"),
        ({"efficiency": 1.5}, "an efficiency must be above 0"),
        ({"optimizer": "lion"}, "the optimizer must be of sgd"),
    ):
        with pytest.raises(PlannerError, match=message):
            plan.make(profile, cluster, Device(), [2], **wish)
    with pytest.raises(PlannerError, match="takes no time"):
        plan.make(models.profile((0.0, 0.0, 4), activation_bytes=1), cluster, Device(), [2])
