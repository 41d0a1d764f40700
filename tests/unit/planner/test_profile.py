"""Profiles: sizes, times, and their files."""

import dataclasses
import json

import planner_models as models
import pytest

from hvd_p3_tools.planner import builtin, estimate, model_tables, network, profile, profile_file
from hvd_p3_tools.planner.device import Device
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.fit import fit_all_reduce
from hvd_p3_tools.planner.simulation.cluster import Cluster, Settings
from hvd_p3_tools.planner.simulation.simulator import simulate


@pytest.mark.parametrize("name", builtin.names())
def test_files_hold_everything(name, tmp_path):
    made = dataclasses.replace(
        builtin.load(name), all_reduce=profile.AllReduceFit(2, 1e-4, 1e9, 0.1)
    )
    profile_file.write(made, tmp_path / "profile.json")
    assert profile_file.read(tmp_path / "profile.json") == made
    assert builtin.find(str(tmp_path / "profile.json")) == made


@pytest.mark.parametrize("name", builtin.names())
def test_builtin_profiles(name):
    device = Device(flops_per_s=1e12, memory_bytes_per_s=1e11, layer_overhead_s=0)
    made = builtin.load(name, batch=4, device=device)
    table = model_tables.load(name)
    flops = sum(layer.flops for layer in table.layers)
    assert made.bytes == table.bytes
    assert made.forward_s == pytest.approx(4 * flops / 1e12)
    assert made.backward_s == pytest.approx(2 * made.forward_s)
    assert made.flops_per_s == 1e12
    # Read and write each weight, read its gradient; read and write each number of the state.
    for optimizer, passes in (("sgd", 3), ("momentum", 5), ("adam", 7)):
        made = builtin.load(name, batch=4, device=device, optimizer=optimizer)
        assert made.update_s == pytest.approx(passes * table.bytes / 1e11)


def test_times_of_a_measured_profile_can_be_estimated():
    layers = (
        profile.Layer("first", 1.0, 1.0, (), flops=3_000_000),
        profile.Layer("second", 1.0, 1.0, (profile.Gradient("kernel", 4_000_000),)),
    )
    measured = profile.Profile("any", "Measured.", 10, layers, input_s=0.5, update_s=0.5)
    device = Device(flops_per_s=1e9, memory_bytes_per_s=1e9, layer_overhead_s=1e-3)
    made = estimate.from_flops(measured, device)
    # 10 examples of 3 million operations take 30 ms forward and 60 ms backward.
    assert [layer.forward_s for layer in made.layers] == pytest.approx([0.031, 0.001])
    assert [layer.backward_s for layer in made.layers] == pytest.approx([0.061, 0.001])
    assert (made.input_s, made.update_s) == (0.5, pytest.approx(5 * 4e-3))
    assert (made.flops_per_s, measured.flops_per_s) == (1e9, None)
    with pytest.raises(PlannerError, match="the profile by hand has no FLOPs"):
        estimate.from_flops(models.profile((1.0, 1.0, 4)), device)


def test_another_batch():
    # 1 ms of each pass of a layer stays, the rest doubles: 1 + 2 * 2 and 1 + 2 * 6 ms.
    made = models.profile(
        (3e-3, 7e-3, 4), batch=8, layer_overhead_s=1e-3, update_s=2e-3, input_s=1e-3
    ).at_batch(16)
    assert made.forward_s == pytest.approx(5e-3)
    assert made.backward_s == pytest.approx(13e-3)
    assert made.input_s == pytest.approx(2e-3)
    assert made.update_s == pytest.approx(2e-3)
    assert made.batch == 16


def _changed(path, value):
    described = json.loads(json.dumps(profile_file.to_dict(builtin.load("alexnet"))))
    *parents, last = path
    place = described
    for each in parents:
        place = place[each]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return described


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["hvd_p3_profile"], None, "hvd_p3_profile is missing"),
        (["hvd_p3_profile"], 99, "in format 99"),
        (["batch"], 0, "batch must be an integer of at least 1"),
        (["batch"], True, "batch must be"),
        (["update_s"], -1, "update_s must be a finite number"),
        (["layers"], [], "layers must be a list of at least one"),
        (["layers"], "none", "layers must be a list"),
        (["layers", 0, "forward_s"], "long", "forward_s of layer 'conv1'"),
        (["layers", 0, "forward_s"], None, r"layers\[0\] lacks 'forward_s'"),
        (["layers", 0, "speed"], 1, r"layers\[0\] has an unknown entry 'speed'"),
        (["layers", 1, "name"], "conv1", "unique"),
        (["layers", 0, "gradients", 0, "bytes"], 1.5, "bytes of conv1/kernel"),
        (["layers", 0, "convolution", "kernel"], [3], "a list of 2 positive integers"),
        (["layers", 0, "convolution", "groups"], 7, "a divisor of the 3 channels of its input"),
        (["layers", 0, "forward_s"], 1e308, "forward_s of layer 'conv1' must be at most 1e.18"),
        (["layers", 0, "gradients", 0, "bytes"], 10**30, "bytes of conv1/kernel must be at most"),
        (["batch"], 10**30, "batch must be"),
        (["flops_per_s"], 0, "flops_per_s must be greater than 0"),
        (["all_reduce"], {"ranks": 1}, "all_reduce lacks 'latency_s'"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, path, value, message):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(_changed(path, value)))
    with pytest.raises(PlannerError, match=message) as error:
        profile_file.read(file)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [None, "no json", "[]", "\udc80", 100_000 * "[", '{"hvd_p3_profile": ' + 10_000 * "1" + "}"],
    ids=["none", "text", "list", "bytes", "deep", "digits"],
)
def test_files_that_are_no_profile(tmp_path, content):
    file = tmp_path / "profile.json"
    if content is not None:
        file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(PlannerError, match=str(file)):
        profile_file.read(file)


def test_unknown_models_get_a_suggestion():
    with pytest.raises(PlannerError, match=r"there is no model vgg16 \(did you mean vgg19\?\)"):
        builtin.find("vgg16")
    with pytest.raises(PlannerError, match="there is no model unheard; the models are alexnet"):
        builtin.find("unheard")


def test_fit_finds_what_the_times_were_made_of():
    sizes = [4**power for power in range(6, 13)]
    # On 4 ranks each link carries 1.5 times the bytes.
    seconds = [2e-4 + 1.5 * size / 1.25e9 for size in sizes]
    fit = fit_all_reduce(4, sizes, seconds)
    assert fit.latency_s == pytest.approx(2e-4)
    assert fit.bytes_per_s == pytest.approx(1.25e9)
    assert fit.relative_error < 1e-9
    # 2 messages of the negotiation and 4 of the all-reduce, one after another, take the 0.2 ms.
    assert network.from_fit(fit).latency_s == pytest.approx(2e-4 / 6)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
@pytest.mark.parametrize("all_reduce", network.ALL_REDUCES)
def test_an_all_reduce_that_is_simulated_alone_takes_what_was_measured(ranks, all_reduce):
    """α and nothing else, but for a gradient of 4 bytes on links that carry 1 GB/s."""
    fit = profile.AllReduceFit(ranks, latency_s=3e-3, bytes_per_s=1e9, relative_error=0.0)
    # The gradient exists at the end of a step's computation, which the next round waits for.
    alone = models.profile((1e-3, 1e-3, 4))
    hvd_p3 = network.from_fit(fit, all_reduce)
    step_s = simulate(alone, Cluster(ranks, hvd_p3), "immediate").step_s
    assert step_s - alone.compute_s == pytest.approx(3e-3, rel=1e-5)
    # Of stock Horovod, α has the wait for a cycle, which begins 1 ms after the all-reduce before.
    at_once = models.profile((1e-9, 1e-9, 4))
    horovod = network.from_fit(fit, all_reduce, rounds=2, cycle_s=1e-3)
    step_s = simulate(at_once, Cluster(ranks, horovod), "fifo", Settings(cycle_s=1e-3)).step_s
    assert step_s == pytest.approx(3e-3, rel=1e-4)
    no_cycle = network.from_fit(fit, all_reduce, rounds=2)
    step_s = simulate(at_once, Cluster(ranks, no_cycle), "fifo", Settings(cycle_s=0.0)).step_s
    assert step_s == pytest.approx(3e-3, rel=1e-4)


def test_hosts_of_a_fit_are_optional(tmp_path):
    path = tmp_path / "profile.json"
    for hosts in (None, 2):
        fit = profile.AllReduceFit(4, 1e-4, 1e9, 0.1, hosts)
        made = dataclasses.replace(builtin.load("alexnet"), all_reduce=fit)
        profile_file.write(made, path)
        assert ("hosts" in json.loads(path.read_text())["all_reduce"]) == (hosts is not None)
        assert profile_file.read(path) == made
    with pytest.raises(PlannerError, match=r"all_reduce\.hosts must be from 1 to the 4 ranks"):
        dataclasses.replace(made, all_reduce=profile.AllReduceFit(4, 1e-4, 1e9, 0.1, 5))


def test_fit_says_how_far_off_it_is():
    fit = fit_all_reduce(2, [1000, 1000, 100000, 100000], [0.9e-3, 1.1e-3, 9e-3, 11e-3])
    assert fit.relative_error == pytest.approx(0.1, rel=0.2)
    with pytest.raises(PlannerError, match="did not take longer"):
        fit_all_reduce(2, [1000, 100000], [1e-3, 1e-4])
    with pytest.raises(PlannerError, match="at least 2 ranks"):
        fit_all_reduce(1, [1000, 100000], [1e-3, 1e-4])


def test_bandwidth_is_that_of_long_all_reduces():
    """Links that let 128 KiB pass at ten times their rate, and carry 100 MB/s for long.

    On 2 ranks a link carries as many bytes as a rank has. Short ones take 0.5 ms and
    bytes / 1 GB/s, long ones 10 ns for each byte.
    """
    sizes = [4096, 65536, 1 << 20, 1 << 22, 1 << 24]
    seconds = [5e-4 + size * 1e-9 if size < 1 << 17 else size * 1e-8 for size in sizes]
    fit = fit_all_reduce(2, sizes, seconds)
    assert fit.bytes_per_s == pytest.approx(1e8)
    # What β leaves of the short ones, 0.504 - 0.041 = 0.463 ms and 0.566 - 0.655 = -0.090 ms, with
    # the weights 1 / 0.504² = 3.94 and 1 / 0.566² = 3.13.
    assert fit.latency_s == pytest.approx(0.218e-3, rel=0.01)
