"""The subcommands plan, profile and simulate, and their errors."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_p3_tools import command_line
from hvd_p3_tools.planner import builtin, profile, profile_file
from hvd_p3_tools.timeline import chrome_trace

_ROOT = Path(__file__).parents[3]


def _run(capsys, *arguments):
    code = command_line.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_simulate_prints_a_table(capsys):
    code, output, errors = _run(
        capsys, "simulate", "alexnet", "--ranks", 4, "--bandwidth", "10Gbit"
    )
    assert (code, errors) == (0, "")
    assert "243.9 MB of gradients" in output
    for scheme in ("fifo", "p3", "server", "shadow"):
        assert f" {scheme} " in output
    assert "10 Gbit/s" in output


def test_simulate_writes_json_plots_and_timelines(capsys, tmp_path):
    plot, timeline = tmp_path / "plot.png", tmp_path / "timeline.json"
    arguments = ["--scheme", "fifo,p3", "--ranks", "2..4", "--bandwidth", "1Gbit/s..2Gbit/s"]
    arguments += ["--json", "-", "--plot", plot, "--timeline", timeline]
    code, output, errors = _run(capsys, "simulate", "alexnet", *arguments)
    assert (code, errors) == (0, "")
    document = json.loads(output)
    assert document["model"] == "alexnet"
    assert [(each["ranks"], each["bandwidth"], each["scheme"]) for each in document["results"]] == [
        (ranks, bandwidth, scheme)
        for ranks in (2, 4)
        for bandwidth in (1.25e8, 2.5e8)
        for scheme in ("fifo", "p3")
    ]
    assert all(each["step_s"] >= each["lower_bound_s"] for each in document["results"])
    assert plot.read_bytes().startswith(b"\x89PNG")
    for scheme in ("fifo", "p3"):
        read = chrome_trace.read(tmp_path / f"timeline.{scheme}.json")
        assert (read.settings["scheme"], read.settings["ranks"]) == (scheme, 2)


def test_simulate_takes_the_network_that_was_measured(capsys, tmp_path):
    path = tmp_path / "profile.json"
    measured = profile.AllReduceFit(2, latency_s=1e-3, bytes_per_s=5e8, relative_error=0.1)
    described = profile_file.to_dict(builtin.load("alexnet"))
    made = profile_file.from_dict({**described, "all_reduce": vars(measured)})
    profile_file.write(made, path)
    code, output, _ = _run(capsys, "simulate", path, "--json", "-", "--scheme", "p3")
    assert code == 0
    assert json.loads(output)["results"][0]["bandwidth"] == 5e8


def test_plan_answers(capsys):
    arguments = ["--gpus", "4,8", "--speedup", 1.2, "--efficiency", 0.9]
    code, output, errors = _run(capsys, "plan", "alexnet", "--memory", "8 GiB", *arguments)
    assert (code, errors) == (0, "")
    for words in ("Batch of one GPU", "Convolutions", "R_O", "parameter servers", "What to do"):
        assert words in output
    assert "with GEMM alone" in output
    assert "Speedup 1.2, each GPU with its batch, simulated with" in output
    assert "Efficiency 0.9, each GPU with its batch, simulated with" in output
    assert output.count("For one task that GPUs divide, by the lemma") == 2


def test_a_batch_that_does_not_fit_is_said_first(capsys):
    arguments = ["--batch", 512, "--gpus", 2, "--bandwidth", "100Gbit/s", "--memory", "8GiB"]
    code, output, _ = _run(capsys, "plan", "resnet50", *arguments)
    assert code == 0
    first = "A batch of 512 does not fit 8.59 GB: this plan is for 51, the largest that does."
    assert output.startswith(first)
    assert "Nothing to change" not in output
    needed = output.index("needed")
    assert needed < output.index("Use a batch of at most 51 examples") < output.index(" %", needed)
    document = json.loads(_run(capsys, "plan", "resnet50", *arguments, "--json", "-")[1])
    assert (document["batch"], document["wanted_batch"]) == (51, 512)


def test_plan_writes_json_with_its_recommendations_ranked(capsys):
    code, output, _ = _run(capsys, "plan", "vgg19", "--gpus", "8", "--json", "-")
    assert code == 0
    document = json.loads(output)
    gains = [each["gain"] for each in document["recommendations"]]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] >= 1.02
    assert document["scheme"] == "p3"
    for each in document["scalings"]:
        # The lemma, from the numbers beside it.
        ratio, gpus = each["ratio"], each["gpus"]
        assert each["efficiency"] == pytest.approx((1 + ratio) / (1 + gpus * ratio))
        assert each["speedup"] == pytest.approx(each["efficiency"] * gpus)
    for option in document["batches"]:
        used = sum(option["memory"].values()) + option["workspace_bytes"]
        assert used <= document["memory_bytes"]


def test_plan_with_nothing_to_gain(capsys):
    # The network costs nothing, and hardly a larger batch than 2000 fits, of 2.8 MB each.
    arguments = ["--gpus", "2", "--bandwidth", "10Tbit/s", "--latency", "0 s", "--batch", "2000"]
    code, output, _ = _run(capsys, "plan", "sockeye", *arguments, "--memory", "6.1 GB")
    assert code == 0
    assert "Nothing to change" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "vgg16"], "there is no model vgg16 (did you mean vgg19?)"),
        (["simulate", "/nowhere.json"], "cannot read the profile /nowhere.json"),
        (["simulate", "alexnet", "--bandwidth", "0Gbit/s"], "--bandwidth must be greater than 0"),
        (["simulate", "alexnet", "--bandwidth", "3ms"], "--bandwidth has a unit that does not fit"),
        (["simulate", "alexnet", "--ranks", "0"], "--ranks must be numbers from 1"),
        (["simulate", "alexnet", "--scheme", "lifo"], "--scheme must be of fifo, immediate"),
        (["simulate", "alexnet", "--batch", "0"], "--batch must be at least 1"),
        (["simulate", "alexnet", "--slice", "0 B"], "slice_bytes must be at least 1"),
        (["simulate", "alexnet", "--slice", "1B"], "slices of 1 B are 60965224 slices a step"),
        (["simulate", "alexnet", "--cycle-time", "1 ns"], "cycle_s must be 0 or at least 1e-06"),
        (["simulate", "alexnet", "--servers", "9"], "servers must be at most"),
        (
            ["simulate", "alexnet", "--scheme", "p3", "--servers", "2"],
            "--servers counts for server",
        ),
        (
            ["simulate", "alexnet", "--scheme", "fifo", "--no-priorities"],
            "--no-priorities counts for immediate, p3, server, shadow alone",
        ),
        (["simulate", "alexnet", "--scheme", "p3", "--fusion", "1MB"], "--fusion counts for fifo"),
        (["simulate", "alexnet", "--straggler-factor", "0.1"], "--straggler-factor needs"),
        (
            ["simulate", "alexnet", "--stragglers", "1", "--straggler-factor", "0.1"],
            "straggler_factor must be at least 1",
        ),
        (["simulate", "alexnet", "--timeline", ""], "--timeline must be the name of a file"),
        (
            ["simulate", "alexnet", "--bandwidth", "1e-300 bit/s"],
            "must leave 1 byte/s to each rank",
        ),
        (["simulate", "alexnet", "--batch", 10**30], "batch must be"),
        (["simulate", "alexnet", "--plot", "/nowhere/a.png"], "a plot needs several"),
        (["simulate", "alexnet", "--json", "/nowhere/a"], "cannot write /nowhere/a"),
        (["simulate", "alexnet", "--timeline", "/nowhere/a"], "use --timeline"),
        (["plan", "bert_large", "--memory", "2 GiB"], "bert_large does not fit 2.147 GB"),
        (["plan", "alexnet", "--memory", "much"], "--memory must be a number with a unit"),
        (["plan", "alexnet", "--efficiency", "2"], "--efficiency must be a finite number above 0"),
        (["plan", "alexnet", "--speedup", "nan"], "--speedup must be a finite number"),
        (["plan", "alexnet", "--speedup", "-3"], "--speedup must be a finite number from 1"),
        (["plan", "alexnet", "--throughput", "0 FLOP/s"], "--throughput must be greater than 0"),
        (["profile", "/nowhere.py"], "there is no program /nowhere.py"),
    ],
)
def test_what_makes_no_sense_is_one_line(capsys, arguments, message):
    code, _, errors = _run(capsys, *arguments)
    assert code == 1
    assert errors.startswith(f"hvd-p3 {arguments[0]}: ")
    assert message in errors
    assert len(errors.splitlines()) == 1


def _measured(path, **changes):
    """Writes the profile of AlexNet as if its times had been measured."""
    made = dataclasses.replace(builtin.load("alexnet"), flops_per_s=None, **changes)
    profile_file.write(made, path)
    return made


def test_throughput_gives_a_measured_profile_times_from_flops(capsys, tmp_path):
    path = tmp_path / "profile.json"
    made = _measured(path)
    for subcommand in ("simulate", "plan"):
        arguments = [subcommand, path, "--json", "-"]
        as_measured = json.loads(_run(capsys, *arguments)[1])
        estimated = json.loads(_run(capsys, *arguments, "--throughput", "1 TFLOP/s")[1])
        as_built_in = [subcommand, "alexnet", "--json", "-", "--throughput", "1 TFLOP/s"]
        assert estimated == json.loads(_run(capsys, *as_built_in)[1])
        assert estimated != as_measured
    assert as_measured["compute_s"] == pytest.approx(made.compute_s)
    layers = tuple(dataclasses.replace(layer, flops=0) for layer in made.layers)
    _measured(path, layers=layers)
    assert _run(capsys, "simulate", path)[0] == 0
    code, _, errors = _run(capsys, "simulate", path, "--throughput", "1 TFLOP/s")
    assert (code, len(errors.splitlines())) == (1, 1)
    assert "the profile alexnet has no FLOPs to estimate times from" in errors


def test_memory_bandwidth_and_optimizer_change_the_update(capsys, tmp_path):
    def compute_s(*arguments):
        return json.loads(_run(capsys, "plan", *arguments, "--json", "-")[1])["gemm_compute_s"]

    size = builtin.load("sockeye").bytes
    slow = compute_s("sockeye", "--memory-bandwidth", "100 GB/s")
    assert slow - compute_s("sockeye") == pytest.approx(5 * size * (1 / 100e9 - 1 / 500e9))
    adam = compute_s("sockeye", "--optimizer", "adam")
    assert adam - compute_s("sockeye") == pytest.approx(2 * size / 500e9)
    path = tmp_path / "profile.json"
    _measured(path)
    code, _, errors = _run(capsys, "plan", path, "--memory-bandwidth", "1 GB/s")
    assert code == 1
    assert "--memory-bandwidth counts where times come from FLOPs" in errors


def test_all_reduces_of_one_host_are_no_network(capsys, tmp_path):
    path = tmp_path / "profile.json"
    for hosts, warned in ((1, True), (2, False), (None, False)):
        _measured(path, all_reduce=profile.AllReduceFit(2, 1e-4, 5e8, 0.1, hosts))
        for subcommand in ("simulate", "plan"):
            code, output, errors = _run(capsys, subcommand, path, "--json", "-")
            assert (code, "among 2 ranks on one host" in errors) == (0, warned)
            assert json.loads(output)["batch"] == 32
    _measured(path, all_reduce=profile.AllReduceFit(2, 1e-4, 5e8, 0.1, 1))
    given = ["--bandwidth", "1Gbit/s", "--latency", "1 ms"]
    assert _run(capsys, "simulate", path, *given)[2] == ""


def test_profile_that_takes_no_time(capsys, tmp_path):
    path = tmp_path / "profile.json"
    layers = tuple(
        dataclasses.replace(layer, forward_s=0.0, backward_s=0.0)
        for layer in builtin.load("alexnet").layers
    )
    _measured(path, layers=layers, update_s=0.0)
    for subcommand in ("simulate", "plan"):
        code, _, errors = _run(capsys, subcommand, path)
        assert code == 1
        assert "the profile alexnet takes no time" in errors


def test_how_ranks_reduce(capsys):
    def step_s(ranks, all_reduce):
        arguments = ["--scheme", "fifo", "--ranks", ranks, "--all-reduce", all_reduce]
        document = json.loads(_run(capsys, "simulate", "resnet50", *arguments, "--json", "-")[1])
        return document["results"][0]["step_s"]

    assert step_s(4095, "tree") == pytest.approx(step_s(4096, "tree"), rel=1e-3)
    assert step_s(4095, "mpi") > 1.5 * step_s(4096, "mpi")
    assert step_s(4095, "ring") == step_s(4095, "mpi")
    assert step_s(4096, "tree") == step_s(4096, "mpi")


@pytest.mark.parametrize("package", ["pint", "scipy.optimize"])
def test_missing_packages_are_named(capsys, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    code, _, errors = _run(capsys, "plan", "alexnet")
    assert code == 1
    assert f"the package {package.split('.')[0]} cannot be imported" in errors


_FAST = """
import sys
from hvd_p3_tools.command_line import main
code = main(sys.argv[1:])
slow = {"tensorflow", "keras", "horovod", "hvd_p3"} & set(sys.modules)
sys.exit(f"imported {slow}" if slow else code)
"""


@pytest.mark.parametrize("subcommand", ["plan", "simulate"])
def test_commands_need_neither_tensorflow_nor_horovod(subcommand):
    command = [sys.executable, "-c", _FAST, subcommand, "alexnet"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=_ROOT)
    assert result.returncode == 0, result.stderr
