"""Training when the network to a rank goes away for a while, or for good. On emulated hosts."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import checkpoints
import launch
import pytest

from benchmarks.cluster import launch as cluster_launch
from benchmarks.cluster.emulated import EmulatedCluster

_PROGRAM = Path(__file__).parent / "program_train.py"
_CUT_S = 3
_TIMEOUT_S = 8
_END_S = 30

pytestmark = [
    pytest.mark.parallel,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="network namespaces need root; run `sudo make test` for this test"
    ),
]


def test_network_that_comes_back_and_network_that_does_not(tmp_path):
    environment = {
        "HVD_P3_STALL_WARNING_S": "1",
        "HVD_P3_STALL_TIMEOUT_S": str(_TIMEOUT_S),
        "CHECKPOINTS": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    command = [sys.executable, str(_PROGRAM), "long"]
    with (
        EmulatedCluster(hosts=2, bandwidth=1e9) as cluster,
        pytest.raises(cluster_launch.LaunchError) as failure,
        cluster_launch.launch(cluster, command, environment) as lines,
    ):
        _wait_until_both_train(lines)
        _cut_for_a_while(cluster, tmp_path)
        # For good: both ranks must end by themselves.
        cluster.set_link(1, connected=False)
        ended = launch.wait_until(lambda: not _ranks(cluster), _TIMEOUT_S + _END_S)
        cluster.set_link(1, connected=True)  # so that mpirun learns of it
        assert ended
        list(lines)
    output = str(failure.value)  # the end of it
    answer = r"Missing: rank \d, which does not answer: .* the network to it is down"
    assert re.search(answer, output), output
    assert f"The wait was ended after {_TIMEOUT_S} s" in output, output
    checkpoints.assert_last_is_intact(tmp_path)


def _wait_until_both_train(lines):
    training = 0
    while training < 2:
        line = next(lines, None)
        assert line is not None, "a rank ended early"
        training += line.count("is training")  # what two ranks say may share a line


def _cut_for_a_while(cluster, folder):
    """Training goes on after the network has come back: rank 0 saves more checkpoints."""
    assert launch.wait_until(lambda: checkpoints.paths(folder), _END_S)
    cluster.set_link(1, connected=False)
    time.sleep(_CUT_S)
    before = len(checkpoints.paths(folder))
    cluster.set_link(1, connected=True)
    # One may have been under way when the network went away.
    assert launch.wait_until(lambda: len(checkpoints.paths(folder)) > before + 1, _TIMEOUT_S)


def _ranks(cluster):
    """The processes of the training program on all hosts."""
    found = []
    for host in cluster.hosts:
        listed = subprocess.run(
            ["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True
        )
        for process in listed.stdout.split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                arguments = Path("/proc", process, "cmdline").read_bytes().split(b"\0")
                if arguments[0].endswith(b"python") and str(_PROGRAM).encode() in arguments:
                    found.append(int(process))
    return found
