"""ShadowSync when a rank is killed."""

import re
from pathlib import Path

import launch
import pytest

_PROGRAM = Path(__file__).parent / "program_shadow.py"
_PATIENCE_S = 150

# Open MPI leaves the other ranks alive.
_RECOVERY = {"OMPI_MCA_orte_enable_recovery": "1", "HVD_P3_SHUTDOWN_TIMEOUT_S": "1"}

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize("algorithm", ["ModelAveraging", "ElasticAveraging"])
def test_the_others_finish_when_a_rank_is_killed(algorithm):
    _, output = launch.run(3, _PROGRAM, [algorithm, 1], _RECOVERY, _PATIENCE_S)
    ends = re.findall(r"rank (\d) has finished, \[0, 2\], checksum (\S+)", output)
    assert sorted(rank for rank, _ in ends) == ["0", "2"], output
    assert len({checksum for _, checksum in ends}) == 1, output
    for rank in (0, 2):
        assert f"hvd_p3.shadow on rank {rank}: rank 1 did not answer and was given up" in output
