"""ShadowSync when a rank is killed."""

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
def test_the_others_finish_when_a_rank_is_killed():
    _, output = launch.run(3, _PROGRAM, [1], _ENVIRONMENT, _PATIENCE_S)
    for name in ("ModelAveraging", "ElasticAveraging"):
        ends = re.findall(rf"{name} on rank (\d): \[0, 2\], checksum (\S+)", output)
        assert sorted(rank for rank, _ in ends) == ["0", "2"], output
        assert len({checksum for _, checksum in ends}) == 1, output
    for rank in (0, 2):
        assert f"hvd_p3.shadow on rank {rank}: rank 1 did not answer and was given up" in output
