"""Starts programs on several ranks with horovodrun, and leaves no process behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil

_RANK_MARK = re.compile(r"\[\d+,(\d+)\]<std(?:out|err)>:")
_JOB = "JOB_OF_A_TEST"  # environment variable by which the processes of a job are known
_LAST_MOMENTS_S = 5.0  # for ranks to end after the launcher


def without_marks(output):
    """Returns output of mpirun without its marks of the rank."""
    return _RANK_MARK.sub("", output)


def by_rank(output, ranks):
    """Returns a list of what each rank has written, from output of mpirun with its marks."""
    _, *parts = _RANK_MARK.split(output)
    written = [""] * ranks
    for rank, text in zip(parts[::2], parts[1::2], strict=True):
        written[int(rank)] += text
    return written


class Job:
    """A running job: `horovodrun -np ranks python program arguments`.

    Programs flush what they print: lines of different ranks then stay apart, which they do not
    with `python -u`, where a line and its end are written one after the other.

    Args:
        ranks: int.
        program: Path of a Python file.
        arguments: List of str.
        environment: dict of str, added to this process's environment.
        controller: "--mpi" or "--gloo".

    Attributes:
        output: str. After `wait`, what the job has written, with mpirun's marks of the rank.
    """

    def __init__(self, ranks, program, arguments=(), environment=None, controller="--mpi"):
        horovodrun = Path(sys.executable).with_name("horovodrun")
        command = [str(horovodrun), "-np", str(ranks), controller]
        command += [sys.executable, str(program), *map(str, arguments)]
        self.output = ""
        self._mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {}), _JOB: self._mark},
            start_new_session=True,
        )

    def wait(self, timeout):
        """Returns (exit code, output). Ends the job and fails if it runs for `timeout` seconds, or
        leaves a process behind.

        The output is without mpirun's marks of the rank, which can stand in the middle of a line.
        """
        try:
            self.output, _ = self.process.communicate(timeout=timeout)
            self.assert_nothing_runs()
        except subprocess.TimeoutExpired:
            self.end()
            self.output, _ = self.process.communicate()
            raise AssertionError(
                f"the job hung for {timeout} s; its output:\n{self.output}"
            ) from None
        finally:
            self.end()
        return self.process.returncode, without_marks(self.output)

    def assert_nothing_runs(self):
        """Fails if a process of the job goes on after the launcher's end."""
        assert wait_until(lambda: not self.members(), _LAST_MOMENTS_S), (
            f"the job has left processes behind: {self.members()}; its output:\n{self.output}"
        )

    def members(self):
        """The processes of the job that are alive."""
        alive = []
        for process in psutil.process_iter():
            # Not by session or parent: ranks have sessions of their own, and outlive their parent.
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get(_JOB) == self._mark and process.status() != "zombie":
                    alive.append(process)
        return alive

    def rank(self, number):
        """The process of a rank, under `--mpi`."""
        for process in self.members():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.environ().get("OMPI_COMM_WORLD_RANK") == str(number):
                    return process
        raise AssertionError(f"rank {number} does not run")

    def end(self):
        """Ends what is still running."""
        for process in self.members():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue


def run(ranks, program, arguments=(), environment=None, timeout=300, controller="--mpi"):
    """Runs a program on several ranks; returns (exit code, output)."""
    return Job(ranks, program, arguments, environment, controller).wait(timeout)


def wait_until(condition, timeout):
    """Returns whether `condition()` became true within `timeout` seconds."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return condition()
