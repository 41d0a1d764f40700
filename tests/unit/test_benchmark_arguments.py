"""The command line of the benchmarks, and the experiments that it chooses."""

import fcntl

import pytest
import rich.console

from benchmarks import __main__ as program
from benchmarks import arguments, comparison, experiments, native, runner, systems
from benchmarks.cluster.launch import LaunchError


def _parse(*given):
    return arguments.parse(list(given), "description")


def _choose(*given):
    return arguments.choose(_parse(*given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--systems", "hvd_p3-overlaped"], "invalid choice: 'hvd_p3-overlaped'"),
        (["--models", "vgg9"], "invalid choice: 'vgg9'"),
        (["--full", "--experiments", "nosuch"], "invalid choice: 'nosuch'"),
        (["--experiments", "hosts"], "add --full"),
        (["--ratios", "1", "0"], "--ratios must be above 0, received 0.0"),
        (["--ratios", "1", "nan"], "--ratios: invalid number value: 'nan'"),
        (["--hosts", "1"], "--hosts must be at least 2, received 1"),
        (["--bandwidth", "inf"], "--bandwidth: invalid number value: 'inf'"),
        (["--bandwidth", "0"], "--bandwidth must be above 0"),
        (["shadow", "--seconds", "0"], "--seconds above 0"),
        (["shadow", "--threshold", "nan"], "--threshold: invalid number value: 'nan'"),
        (["--steps-per-execution", "0"], "--steps-per-execution must be at least 1"),
        (["--steps", "5"], "--warmup and --steps multiples of it; they are 8, 8 and 5"),
        (["--cycle-time", "0"], "--cycle-time must be above 0, received 0"),
        (["micro", "--slice-kib", "2048"], "no --credit-kib below a slice"),
        (["tune", "--systems", "stock-horovod-mpi"], "tune searches the settings of"),
        (["tune", "--ratios", "0.5"], "--ratios is for compare and micro, which tune is not"),
        (["validate", "--hosts", "8"], "--hosts is for compare and tune and micro and shadow"),
        (["micro", "--full"], "--full is for compare, which micro is not"),
        (["--slice-kib", "60"], "--slice-kib is for micro, which compare is not"),
        (
            ["--models", "tensors-1000", "--systems", "hvd_p3-overlapped"],
            "tensors-1000 and tensors-10000 have no model to train",
        ),
        (["micro", "--models", "digits"], "micro replays models with layers; digits has none"),
    ],
)
def test_what_makes_no_sense_is_said(given, message, capsys):
    with pytest.raises(SystemExit) as ended:
        _parse(*given)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ([], (8, 8, 8)),
        (["--steps-per-execution", "1"], (1, 2, 5)),
        (["--steps-per-execution", "4", "--steps", "20"], (4, 4, 20)),
        (["--autotune"], (1, 2, 5)),
        (["tune"], (1, 2, 5)),
    ],
)
def test_steps(given, numbers):
    parsed = _parse(*given)
    assert (parsed.steps_per_execution, parsed.warmup, parsed.steps) == numbers


def test_short_comparison():
    (chosen,) = _choose("--hosts", "3", "--bandwidth", "2")
    assert chosen.models == ("vgg19", "resnet50")
    assert chosen.ratios == (0.5, 1.0, 2.0)
    assert (chosen.hosts, chosen.bandwidth) == (3, 2e9)


def test_any_ratio_and_model_can_be_measured():
    (chosen,) = _choose("--ratios", "0.75", "4", "--models", "bert_large")
    assert chosen.ratios == (0.75, 4.0)
    assert chosen.models == ("bert_large",)


def test_any_system_can_be_measured():
    (chosen,) = _choose("--systems", "stock-horovod-gloo", "hvd_p3-slices-only")
    assert chosen.systems == (systems.HOROVOD_GLOO, systems.SLICES_ONLY)


def test_full_comparison_has_every_experiment_and_system():
    chosen = _choose("--full")
    assert {each.name for each in chosen} == set(experiments.names_of_full())
    assert chosen[0].systems == experiments.ALL


def test_experiments_that_vary_something_else_keep_their_models():
    chosen = _choose("--full", "--experiments", "hosts", "tensors", "--models", "vgg19")
    assert [each.name for each in chosen] == ["hosts"] * 3
    with pytest.raises(SystemExit, match="nothing is left to measure"):
        _choose("--full", "--experiments", "hosts", "--models", "resnet50")


def test_settings_of_tuned_horovod_are_taken():
    given = ["--fusion-threshold", "2048", "--cycle-time", "2.5"]
    (chosen,) = _choose(*given, "--systems", "stock-horovod-mpi", "stock-horovod-mpi-tuned")
    stock, tuned = chosen.systems
    assert stock.environment == {}
    assert tuned.environment == {
        "HOROVOD_FUSION_THRESHOLD": str(2048 * 1024),
        "HOROVOD_CYCLE_TIME": "2.5",
    }


def test_autotuning_is_over_before_steps_are_measured():
    parsed = _parse("--autotune", "--warmup", "3")
    (chosen,) = arguments.choose(parsed)
    repetitions = runner.Repetitions.of(parsed)
    warmup = {each.name: repetitions.for_system(each).warmup for each in chosen.systems}
    assert warmup == {
        "stock-horovod-mpi": 3,
        "stock-horovod-gloo": 3,
        "hvd_p3-overlapped": systems.AUTOTUNE_STEPS,
    }


def test_tensors_without_a_model_have_systems_of_their_own():
    with_model, without = _choose("--models", "vgg19", "tensors-1000")
    assert (with_model.models, with_model.systems) == (("vgg19",), experiments.MAIN)
    assert (without.models, without.systems) == (("tensors-1000",), experiments.TENSORS)


def test_silence_of_a_launch_grows_with_its_longest_measurement():
    (chosen,) = _choose("--ratios", "0.01", "1")
    (measurement, *_) = runner.measurements_of(chosen, 1.25e8, runner.Repetitions(10, 90))
    assert runner.silence_of([measurement]) > 100 * 45


def test_results_of_the_run_before_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "build", lambda: None)
    monkeypatch.setattr(runner, "run", lambda *_: [])
    (tmp_path / "bench-results.json").write_text("an hour's work")
    comparison.compare(_parse("--output", str(tmp_path)), rich.console.Console())
    assert (tmp_path / "previous-bench-results.json").read_text() == "an hour's work"


def test_systems_that_do_not_run_are_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "build", lambda: None)
    monkeypatch.setattr(runner, "run", lambda *_: ["ratio, some system: segmentation fault"])
    with pytest.raises(LaunchError, match="not all systems ran:\nratio, some system: segm"):
        comparison.compare(_parse("--output", str(tmp_path)), rich.console.Console())


def test_two_benchmarks_do_not_run_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(program, "_LOCK", tmp_path / "benchmark.lock")
    with (tmp_path / "benchmark.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (
            pytest.raises(SystemExit, match="another benchmark of "),
            program._alone(),
        ):
            raise AssertionError("it runs")
    with program._alone():
        pass  # the other has ended


def test_folder_that_cannot_be_made_is_said_before_measuring(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="--output must be a folder that can be made"):
        program._prepare(tmp_path / "file" / "folder")
