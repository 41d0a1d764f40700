"""Jobs that go wrong end soon, with a message, and leave no process behind."""

import re
import threading
import time
from pathlib import Path

import launch
import psutil
import pytest

_PROGRAM = Path(__file__).parent / "program_train.py"
_START_S = 120  # for ranks to import TensorFlow and trace, on a slow machine
_END_S = 30  # for a job to end after a rank has failed

pytestmark = pytest.mark.parallel


def test_killing_a_rank_ends_the_job():
    job = launch.Job(2, _PROGRAM, ["long"])
    ranks = {}
    lines = []
    try:
        started = time.monotonic()
        while len(ranks) < 2:
            assert time.monotonic() - started < _START_S, "".join(lines)
            lines.append(job.process.stdout.readline())
            for rank, pid in re.findall(r"rank (\d) is training as process (\d+)", lines[-1]):
                ranks[int(rank)] = int(pid)
        psutil.Process(ranks[1]).kill()
        killed = time.monotonic()
        drain = threading.Thread(target=lambda: lines.extend(job.process.stdout))
        drain.start()
        assert launch.wait_until(lambda: job.process.poll() is not None, _END_S), "".join(lines)
        assert time.monotonic() - killed < _END_S
        assert job.process.returncode != 0
        assert launch.wait_until(lambda: not any(map(psutil.pid_exists, ranks.values())), 5)
        drain.join(5)
    finally:
        job.end()
    assert re.search(r"signal 9|Killed", "".join(lines)), "".join(lines)


@pytest.mark.parametrize("failing_rank", [0, 1])
@pytest.mark.parametrize("what", ["raise", "exit"])
def test_rank_that_ends_in_the_middle_ends_the_job(what, failing_rank):
    job = launch.Job(2, _PROGRAM, [what, failing_rank])
    code, output = job.wait(_START_S + _END_S)
    assert code != 0
    if what == "raise":
        assert "ArithmeticError: this rank fails on purpose" in output
    else:
        # The other rank may fail first, since it learns at once that this one is gone.
        assert re.search(r"ended its program|has ended|[Ee]xit code:\s+3", output), output
    assert "has finished" not in output


def test_ranks_with_different_numbers_of_steps_end_with_a_message():
    code, output = launch.Job(2, _PROGRAM, ["fewer", 1]).wait(_START_S + _END_S)
    assert code != 0
    assert re.search(r"a rank called hvd_p3.shutdown\(\)|another rank has ended", output), output


def test_ranks_with_different_settings_get_a_message():
    code, output = launch.Job(2, _PROGRAM, ["settings", 1]).wait(_START_S + _END_S)
    assert code != 0
    assert "ranks disagree about HVD_P3_SLICE_BYTES" in output
    assert "122880 on rank 0; 1000 on rank 1" in output
