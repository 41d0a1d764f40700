"""Owners of embeddings that end before others."""

import re
from pathlib import Path

import launch
import pytest

_PROGRAM = Path(__file__).with_name("program_embedding.py")

pytestmark = pytest.mark.parallel


def test_rank_that_finishes_early_serves_the_others_until_they_finish():
    code, output = launch.run(2, _PROGRAM, ["early"])
    assert code == 0, output
    assert output.index("rank 1 is at its end") < output.index("rank 0 has finished")


def test_rank_that_ends_with_an_exception_ends_the_job():
    code, output = launch.Job(2, _PROGRAM, ["raise"]).wait(150)
    assert code != 0
    assert "ArithmeticError: this rank fails on purpose" in output
    # Rank 0 says why, unless the launcher ends it first.
    if "RuntimeError: rank 1" in output:
        assert re.search(r"rank 1, which owns a part of layer 'users', (is gone|cannot)", output)
    assert "rank 0 has finished" not in output
