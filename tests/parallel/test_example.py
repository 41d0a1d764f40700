"""The examples, as a user runs them."""

import re
import subprocess
import sys
from pathlib import Path

import launch
import pytest

_EXAMPLES = Path(__file__).parents[2] / "examples"
_DIGITS = _EXAMPLES / "keras_digits.py"
_ADVANCED = _EXAMPLES / "keras_advanced.py"
_START_S = 120  # for ranks to start and train an epoch, on a slow machine
_END_S = 30  # for a job to end after a rank has failed

pytestmark = pytest.mark.parallel


def _last_line(output):
    """The last line of what the example says."""
    lines = [line for line in output.splitlines() if "digits: validation accuracy" in line]
    return lines[-1].strip() if lines else output


def test_digits_on_two_ranks(tmp_path):
    checkpoint = tmp_path / "digits.keras"
    code, output = launch.run(2, _DIGITS, ["--checkpoint", checkpoint])
    assert code == 0, output
    match = re.fullmatch(r"digits: validation accuracy (0\.9\d{3}) on 2 ranks", _last_line(output))
    assert match, output
    assert float(match[1]) >= 0.95
    assert "P3: overlapped mode" in output
    assert checkpoint.exists()


def test_digits_below_the_least_accuracy_fails(tmp_path):
    arguments = ["--epochs", "1", "--least-accuracy", "1.1", "--checkpoint", ""]
    code, output = launch.run(2, _DIGITS, arguments)
    assert code != 0
    assert "on 2 ranks" in _last_line(output)


def test_digits_on_one_rank_without_horovodrun():
    command = [sys.executable, str(_DIGITS), "--epochs", "8", "--checkpoint", ""]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(
        r"digits: validation accuracy 0\.9\d{3} on 1 ranks", _last_line(result.stdout)
    )


def test_digits_under_gloo_trains_in_immediate_mode():
    arguments = ["--epochs", "2", "--least-accuracy", "0", "--checkpoint", ""]
    code, output = launch.run(2, _DIGITS, arguments, controller="--gloo")
    assert code == 0, output
    assert "Horovod runs on Gloo" in output
    assert "on 2 ranks" in _last_line(output)


def test_advanced_on_two_ranks_goes_on_after_an_interruption(tmp_path):
    checkpoint = tmp_path / "last.keras"
    arguments = ["--checkpoint", checkpoint, "--best", tmp_path / "best.keras", "--epochs", "8"]
    job = launch.Job(2, _ADVANCED, [*arguments, "--warmup-epochs", "1"])
    try:
        assert launch.wait_until(checkpoint.exists, _START_S)
        job.rank(0).kill()  # the one that writes
    finally:
        code, output = job.wait(_END_S)
    assert code != 0
    assert "the learning rate has reached 0.04 at the end of warm-up" in output
    assert "digits: test accuracy" not in output
    code, output = launch.run(2, _ADVANCED, arguments)
    assert code == 0, output
    match = re.search(r"accuracy (0\.9\d{3}|1\.0+) after epochs [1-7] to 8 on 2 ranks", output)
    assert match, output
    assert float(match[1]) >= 0.95
    assert "P3: overlapped mode" in output
    assert output.count("Training in immediate mode") == 0, output
    assert (tmp_path / "best.keras").exists()
