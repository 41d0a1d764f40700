"""Jobs that go wrong end soon, with a message, and leave no process behind."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import checkpoints
import launch
import psutil
import pytest

_PROGRAM = Path(__file__).parent / "program_train.py"
_START_S = 120  # for ranks to import TensorFlow and trace, on a slow machine
_END_S = 30  # for a job to end after a rank has failed

pytestmark = pytest.mark.parallel


class _TrainingJob:
    """Two ranks that train for long; `ranks` maps each to its process, once all train."""

    def __init__(self, environment=None):
        self.launched = launch.Job(2, _PROGRAM, ["long"], environment)
        self.ranks = {}
        self._lines = []

    def __enter__(self):
        try:
            started = time.monotonic()
            while len(self.ranks) < 2:
                assert time.monotonic() - started < _START_S, "".join(self._lines)
                self._lines.append(self.launched.process.stdout.readline())
                found = re.findall(r"rank (\d) is training as process (\d+)", self._lines[-1])
                self.ranks.update((int(rank), int(pid)) for rank, pid in found)
        except BaseException:
            self.launched.end()
            raise
        self._drain = threading.Thread(
            target=lambda: self._lines.extend(self.launched.process.stdout)
        )
        self._drain.start()
        return self

    def __exit__(self, *exception):
        self.launched.end()
        self._drain.join()

    def wait_for_end(self, timeout):
        """Asserts that the job fails and leaves no rank; returns its output."""
        process = self.launched.process
        assert launch.wait_until(lambda: process.poll() is not None, timeout), "".join(self._lines)
        assert process.returncode != 0
        assert launch.wait_until(lambda: not any(map(psutil.pid_exists, self.ranks.values())), 5)
        self._drain.join(5)
        return launch.without_marks("".join(self._lines))


def test_killing_a_rank_ends_the_job():
    with _TrainingJob() as job:
        psutil.Process(job.ranks[1]).kill()
        output = job.wait_for_end(_END_S)
    assert re.search(r"signal 9|Killed", output), output


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
    assert "the ranks disagree about HVD_P3_SLICE_BYTES: 122880 on rank 0; 1000 on rank 1" in output


def test_tensor_of_one_rank_is_reported_and_ends_the_job():
    stall = {"HVD_P3_STALL_WARNING_S": "1", "HVD_P3_STALL_TIMEOUT_S": "4"}
    code, output = launch.Job(2, _PROGRAM, ["alone", 1], stall).wait(_START_S + _END_S)
    assert code != 0
    missing = r"tensor 'of one rank'.* has waited .* Missing: rank 0, where no such tensor exists"
    assert re.search(f"warning on rank 1: {missing}", output), output
    # Both ranks get an error: rank 0 waits for the next gradient of rank 1.
    assert re.search("The wait was ended after 4 s", output), output
    assert "has finished" not in output


def test_rank_that_stops_is_reported_and_ends_the_job():
    stall = {"HVD_P3_STALL_WARNING_S": "1", "HVD_P3_STALL_TIMEOUT_S": "6"}
    with _TrainingJob(environment=stall) as job:
        psutil.Process(job.ranks[1]).suspend()
        output = job.wait_for_end(_END_S)
    assert "Missing: rank 1, which does not answer: its process has stopped" in output
    assert "The wait was ended after 6 s" in output


def test_interrupted_job_ends(tmp_path):
    with _TrainingJob(environment={"CHECKPOINTS": str(tmp_path)}) as job:
        assert launch.wait_until(lambda: len(checkpoints.paths(tmp_path)) > 2, _START_S)
        os.killpg(job.launched.process.pid, signal.SIGINT)  # as a terminal does
        job.wait_for_end(_END_S)
    checkpoints.assert_last_is_intact(tmp_path)


def test_rank_without_memory_says_so():
    code, output = launch.Job(2, _PROGRAM, ["memory", 1]).wait(_START_S + _END_S)
    assert code != 0
    assert "no memory on this rank for the reduced gradient of tensor 'tensor/large'" in output
    assert "has finished" not in output


def test_ranks_that_import_horovod_in_different_order_get_a_message():
    code, output = launch.Job(2, _PROGRAM.with_name("program_import_order.py")).wait(
        _START_S + _END_S
    )
    assert code != 0
    assert "some ranks have imported Horovod before hvd_p3 and others after it" in output
    assert "has started" not in output


def test_threads_and_forked_processes():
    """init works in a thread; a forked process is told that it cannot use hvd_p3."""
    code, output = launch.run(2, Path(__file__).parent / "program_processes.py")
    assert code == 0, output
    assert output.count("has finished") == 2, output
    assert output.count("child: this process was forked from a rank after hvd_p3.init()") == 2
    assert output.count("child: hvd_p3.init cannot be called") == 2
