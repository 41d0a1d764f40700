"""Commands of `hvd-p3` that say more when ranks run them."""

import re
from pathlib import Path

import launch
import pytest

from hvd_p3_tools.planner import profile_file

_PROGRAM = Path(__file__).parent / "program_command_line.py"
_DIGITS = Path(__file__).parents[2] / "examples" / "keras_digits.py"

pytestmark = pytest.mark.parallel


def test_doctor_as_a_rank():
    code, output = launch.run(1, _PROGRAM, ["doctor"])
    assert code == 0, output
    assert re.search(r"MPI at run time: +\S.*, MPI_THREAD_MULTIPLE", output), output
    assert "warning: MPI" not in output


def test_profile_on_two_ranks_measures_all_reduces(tmp_path):
    path = tmp_path / "profile.json"
    arguments = ["profile", "--output", path, _DIGITS, "--checkpoint", tmp_path / "digits.keras"]
    code, output = launch.run(2, _PROGRAM, arguments)
    assert code == 0, output
    profile = profile_file.read(path)
    assert profile.all_reduce.ranks == 2
    assert profile.all_reduce.bytes_per_s > 0
    assert profile.all_reduce.latency_s >= 0
    assert re.search(r"All-reduce on 2 ranks: .* with a median error of \d+ %", output), output
    assert output.count("Written:") == 1, output  # by rank 0
    assert profile.all_reduce.hosts == 1
    assert output.count("were measured among 2 ranks on one host") == 1, output
    assert any(layer.flops > 0 for layer in profile.layers)
    assert not list(tmp_path.glob("*.keras")), "it was trained"
