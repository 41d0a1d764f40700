"""ShadowSync when ranks are killed."""

import re
from pathlib import Path

import launch
import pytest

_PROGRAM = Path(__file__).parent / "program_shadow.py"
_PATIENCE_S = 180

_ENVIRONMENT = {
    "OMPI_MCA_orte_enable_recovery": "1",  # Open MPI leaves the other ranks alive
    "OMPI_MCA_btl": "tcp,self",  # as between hosts: a message can stop in the middle
    "HVD_P3_SHUTDOWN_TIMEOUT_S": "1",
}


@pytest.mark.parallel
def test_the_others_finish_when_ranks_are_killed():
    """The second one is the first rank, while the others wait for it to give up the first one."""
    _, output = launch.run(4, _PROGRAM, [1, 0, 0, 2.5], _ENVIRONMENT, _PATIENCE_S)
    for name in ("ModelAveraging", "ElasticAveraging"):
        ends = re.findall(rf"{name} on rank (\d): \[2, 3\], checksum (\S+)", output)
        assert sorted(rank for rank, _ in ends) == ["2", "2", "3", "3"], output
        assert len({checksum for _, checksum in ends}) == 2, output  # of two trainings
    for rank in (2, 3):
        for lost in ("0", "1", "0, 1"):
            if f"on rank {rank}: ranks {lost} did not answer and were given up" in output:
                break
        else:
            for lost in (0, 1):
                assert f"on rank {rank}: rank {lost} did not answer and was given up" in output
