"""Starts programs on several ranks with horovodrun, and leaves no process behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

_RANK_MARK = re.compile(r"\[\d+,\d+\]<std(out|err)>:")


def without_marks(output):
    """Returns output of mpirun without its marks of the rank."""
    return _RANK_MARK.sub("", output)


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
    """

    def __init__(self, ranks, program, arguments=(), environment=None, controller="--mpi"):
        horovodrun = Path(sys.executable).with_name("horovodrun")
        command = [str(horovodrun), "-np", str(ranks), controller]
        command += [sys.executable, str(program), *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )

    def wait(self, timeout):
        """Returns (exit code, output). Ends the job and fails if it runs for `timeout` seconds.

        The output is without mpirun's marks of the rank, which can stand in the middle of a line.
        """
        try:
            output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.end()
            output, _ = self.process.communicate()
            raise AssertionError(f"the job hung for {timeout} s; its output:\n{output}") from None
        finally:
            self.end()
        return self.process.returncode, without_marks(output)

    def members(self):
        """The processes of the job that are alive."""
        alive = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid and process.status() != "zombie":
                    alive.append(process)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        # mpirun puts ranks into sessions of their own; they are its descendants.
        for process in list(alive):
            try:
                alive += [child for child in process.children(recursive=True) if child not in alive]
            except psutil.NoSuchProcess:
                continue
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
