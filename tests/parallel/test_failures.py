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

from hvd_p3._build_info import HVD_P3_VERSION

_PROGRAM = Path(__file__).parent / "program_train.py"
_START_S = 120  # for ranks to import TensorFlow and trace, on a slow machine
_END_S = 30  # for a job to end after a rank has failed
# The timeout in jobs with stalls. Finding out takes 5 s more at most, and a program that does not
# come back to Python is given 10 s.
_STALL = {"HVD_P3_STALL_WARNING_S": "1", "HVD_P3_STALL_TIMEOUT_S": "6"}

pytestmark = pytest.mark.parallel


class _TrainingJob:
    """Two ranks that train for long; `ranks` maps each to its process, once all train."""

    def __init__(self, *arguments, environment=None):
        self.launched = launch.Job(2, _PROGRAM, arguments, environment)
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
        """Asserts that the job fails and leaves no process; returns its output."""
        process = self.launched.process
        assert launch.wait_until(lambda: process.poll() is not None, timeout), "".join(self._lines)
        assert process.returncode != 0
        self._drain.join(5)
        self.launched.output = "".join(self._lines)
        self.launched.assert_nothing_runs()
        return launch.without_marks(self.launched.output)


def _outputs_of_failed_job(what, failing_rank, environment=None):
    """Runs two ranks of which one goes wrong; returns what each has written."""
    job = launch.Job(2, _PROGRAM, [what, failing_rank], environment)
    code, _ = job.wait(_START_S + _END_S)
    assert code != 0, job.output
    return launch.by_rank(job.output, 2)


@pytest.mark.parametrize("killed", [0, 1])
def test_killing_a_rank_ends_the_job(killed):
    with _TrainingJob("long") as job:
        psutil.Process(job.ranks[killed]).kill()
        output = job.wait_for_end(_END_S)
    assert re.search(r"signal 9|Killed", output), output


@pytest.mark.parametrize(
    "what, failing_rank",
    [("raise", 0), ("exit", 1), ("leave", 0), ("fewer", 1)],
)
def test_rank_that_ends_before_the_others_is_named(what, failing_rank):
    outputs = _outputs_of_failed_job(what, failing_rank)
    other = outputs[1 - failing_rank]
    error = rf"tensor '[^']+' was not reduced: rank {failing_rank} has ended: .*"
    remedy = "give all ranks the same number of steps, see hvd_p3.data.equal_batches"
    assert re.search(error + remedy, other), outputs
    assert "has finished" not in other
    own = outputs[failing_rank]
    assert ("ArithmeticError: this rank fails on purpose" in own) == (what == "raise")
    assert (f"rank {failing_rank} has finished" in own) == (what == "fewer")


@pytest.mark.parametrize(
    "what, message",
    [
        ("settings", "HVD_P3_SLICE_BYTES: 122880 on rank 0; 1000 on rank 1"),
        ("version", f"the version of hvd_p3: {HVD_P3_VERSION} on rank 0; 0.0.0 on rank 1"),
    ],
)
def test_ranks_with_another_installation_or_settings_get_a_message(what, message):
    for output in _outputs_of_failed_job(what, 1):
        assert f"the ranks disagree about {message}. Give all ranks the same" in output
        assert "is training" not in output


def test_ranks_with_another_op_get_a_message():
    """Rank 1 is in Horovod's operation, which the other never joins."""
    outputs = _outputs_of_failed_job("adasum", 1)
    message = (
        "ranks disagree about the arguments of .*op=Average.* on rank 0; .*op=Adasum.* on rank 1"
    )
    assert re.search(message, outputs[0]), outputs
    assert not any("is training" in output for output in outputs)


def test_tensor_of_one_rank_is_reported_and_ends_the_job():
    outputs = _outputs_of_failed_job("alone", 1, _STALL)
    missing = r"tensor 'of one rank'.* has waited .* Missing: rank 0, where no such tensor exists"
    assert re.search(f"warning on rank 1: {missing}", outputs[1]), outputs
    for output in outputs:  # rank 0 waits for the next gradient of rank 1
        assert re.search(r"DeadlineExceededError.* was ended after 6 s", output, re.S), outputs
        assert "has finished" not in output


def test_rank_that_stops_is_reported_and_ends_the_job():
    """The other rank is in Horovod's operation of an embedding's gradient, which never returns."""
    with _TrainingJob("embedding", environment=_STALL) as job:
        psutil.Process(job.ranks[1]).suspend()
        output = job.wait_for_end(_END_S)
    # Whether a gradient waits depends on the moment.
    silent = r"(tensor '.*Missing: rank 1, which does not answer|rank 1 has not answered for .*)"
    error = f"error on rank 0: {silent}: its process has stopped.*The wait was ended after 6 s"
    assert re.search(error, output), output


def test_rank_that_stops_while_others_average_metrics_ends_the_job():
    """Nothing waits in the engine: the ranks hear nothing from each other."""
    with _TrainingJob("metrics", 1, environment=_STALL) as job:
        psutil.Process(job.ranks[1]).suspend()
        output = job.wait_for_end(_END_S)
    assert re.search("error on rank 0: rank 1 has not answered for .* its process has", output)
    assert "so this process ends" in output


def test_rank_that_stays_away_while_others_average_metrics_ends_the_job():
    """Its engine answers; Horovod ends the wait."""
    outputs = _outputs_of_failed_job("metrics", 1, _STALL)
    assert "hvd_p3.metric_names" in outputs[0], outputs


def test_interrupted_job_ends(tmp_path):
    with _TrainingJob("long", environment={"CHECKPOINTS": str(tmp_path)}) as job:
        assert launch.wait_until(lambda: len(checkpoints.paths(tmp_path)) > 2, _START_S)
        os.killpg(job.launched.process.pid, signal.SIGINT)  # as a terminal does
        job.wait_for_end(_END_S)
    checkpoints.assert_last_is_intact(tmp_path)


def test_rank_without_memory_says_so():
    outputs = _outputs_of_failed_job("memory", 1)
    message = "no memory on this rank for the reduced gradient of tensor 'tensor/large'"
    assert message in outputs[1], outputs
    assert not any("has finished" in output for output in outputs)


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
