"""Owners of embeddings that end before others."""

import re
from pathlib import Path

import launch
import pytest

_PROGRAM = Path(__file__).with_name("program_embedding.py")
_PATIENCE_S = 180

# Open MPI leaves the other ranks alive when one is killed.
_RECOVERY = {"OMPI_MCA_orte_enable_recovery": "1", "HVD_P3_SHUTDOWN_TIMEOUT_S": "1"}

pytestmark = pytest.mark.parallel


def test_killed_owner_and_one_that_finishes_early():
    _, output = launch.run(3, _PROGRAM, ["leave"], _RECOVERY, _PATIENCE_S)
    for rank in (0, 1):
        assert re.search(
            rf"rank {rank} has received: rank 2, which owns a part of layer 'users', "
            r"(has not answered for 1.5 s|takes no message|cannot answer)",
            output,
        ), output
    # Rank 1 answers rank 0 to the end.
    assert output.index("rank 1 is at its end") < output.index("rank 0 has finished")


def test_rank_that_ends_before_others_with_which_it_reduces_gradients_ends_the_job():
    code, output = launch.run(2, _PROGRAM, ["fewer"], timeout=_PATIENCE_S)
    assert code != 0
    assert re.search(r"tensor '.*' was not reduced: rank 1 has ended", output), output
    assert "rank 0 has finished" not in output


def test_rank_that_ends_with_an_exception_ends_the_job():
    code, output = launch.run(2, _PROGRAM, ["raise"], timeout=_PATIENCE_S)
    assert code != 0
    assert "ArithmeticError: this rank fails on purpose" in output
    # Rank 0 says why, unless the launcher ends it first.
    if "RuntimeError: rank 1" in output:
        assert re.search(r"rank 1, which owns a part of layer 'users', (is gone|cannot)", output)
    assert "rank 0 has finished" not in output
