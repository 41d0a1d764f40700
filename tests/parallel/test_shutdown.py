"""What ranks have submitted before they shut down is not lost."""

import re
from pathlib import Path

import launch
import pytest

_PROGRAM = Path(__file__).parent / "program_shutdown.py"


@pytest.mark.parallel
def test_weights_read_after_shutdown_have_the_pending_updates():
    code, output = launch.run(2, _PROGRAM)
    assert code == 0, output
    unfinished = re.findall(r"same weights; (\d+) bytes were unfinished", output)
    assert len(unfinished) == 2, output
    assert any(map(int, unfinished)), "nothing was pending; the test shows nothing"
