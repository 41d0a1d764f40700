"""What ranks have submitted before they shut down is not lost, and neither is the timeline."""

import collections
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
    timeline = chrome_trace.read(path)
    assert len(timeline.ranks) == 2
    for rank in timeline.ranks:
        # Of two trainings of three steps; what is reduced during the shutdown is recorded too.
        assert all(each.finished is not None for each in rank.reductions)
        counts = collections.Counter(each.tensor for each in rank.reductions)
        assert set(counts.values()) == {3}
        assert sum("dense/bias" in tensor for tensor in counts) == 2
