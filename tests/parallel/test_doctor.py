"""The command `hvd-p3 doctor` where it is to be run: as a rank."""

import re
from pathlib import Path

import launch
import pytest

_PROGRAM = Path(__file__).parent / "program_doctor.py"


@pytest.mark.parallel
def test_doctor_as_a_rank():
    code, output = launch.run(1, _PROGRAM)
    assert code == 0, output
    assert re.search(r"MPI at run time: +\S.*, MPI_THREAD_MULTIPLE", output), output
    assert "warning: MPI" not in output
