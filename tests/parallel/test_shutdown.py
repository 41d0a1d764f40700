"""What ranks have submitted before they shut down is not lost, and neither is the timeline."""

import re
from pathlib import Path

import launch
import pytest

from hvd_p3_tools.timeline import chrome_trace

_PROGRAM = Path(__file__).parent / "program_shutdown.py"


@pytest.mark.parallel
def test_weights_read_after_shutdown_have_the_pending_updates(tmp_path):
    path = tmp_path / "timeline.json"
    code, output = launch.run(2, _PROGRAM, environment={"HVD_P3_TIMELINE": str(path)})
    assert code == 0, output
    unfinished = re.findall(r"same weights; (\d+) bytes were unfinished", output)
    assert len(unfinished) == 2, output
    assert any(map(int, unfinished)), "nothing was pending; the test shows nothing"
    for rank in chrome_trace.read(path).ranks:
        # Of two trainings; what was reduced during the shutdown is recorded too.
        assert {len(each.slices) > 0 and each.finished is not None for each in rank.reductions} == {
            True
        }
        assert len([each for each in rank.reductions if each.tensor.startswith("dense/bias")]) == 6
