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
    files = ["--checkpoint", tmp_path / "last.keras", "--best", tmp_path / "best.keras"]
    arguments = [*files, "--epochs", "2", "--warmup-epochs", "1", "--least-accuracy", "0"]
    code, output = launch.run(2, _ADVANCED, arguments)
    assert code == 0, output
    assert "the learning rate has reached 0.04 at the end of warm-up" in output
    assert "after epochs 0 to 2 on 2 ranks" in output
    code, output = launch.run(2, _ADVANCED, [*files, "--epochs", "8"])
    assert code == 0, output
    match = re.search(r"test accuracy (0\.9\d{3}|1\.0+) after epochs 2 to 8 on 2 ranks", output)
    assert match, output
    assert float(match[1]) >= 0.95
    assert "P3: overlapped mode" in output
    assert output.count("Training in immediate mode") == 0, output
    assert (tmp_path / "best.keras").exists()
