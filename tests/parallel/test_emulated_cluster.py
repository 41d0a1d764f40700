"""The benchmark's emulated hosts: made, shaped, and removed whatever happens."""

import os
import signal
import subprocess
import sys

import pytest

from benchmarks import bandwidth
from benchmarks.cluster import emulated
from benchmarks.cluster.launch import LaunchError, launch

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="network namespaces need root; run `sudo make test` for this test"
)


def _namespaces():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if f"hvdp3-{os.getpid()}" in line]


@needs_root
def test_program_runs_on_every_host_and_leaves_nothing():
    with emulated.EmulatedCluster(hosts=3, bandwidth=1e9) as cluster:
        with launch(cluster, ["sh", "-c", "echo $(hostname) $GREETING"], {"GREETING": "hi"}) as all:
            lines = sorted(line for line in all if line)
        assert lines == ["host0 hi", "host1 hi", "host2 hi"]
        assert len(_namespaces()) == 4
    assert _namespaces() == []


@needs_root
def test_hosts_know_each_others_names():
    command = ["getent", "hosts", "host0", "host1"]
    with (
        emulated.EmulatedCluster(hosts=2, bandwidth=1e9) as cluster,
        launch(cluster, command) as all,
    ):
        lines = [line.split() for line in all if line]
    assert sorted(lines) == 2 * [["10.77.0.1", "host0"]] + 2 * [["10.77.0.2", "host1"]]


@needs_root
def test_links_carry_no_more_than_their_bandwidth():
    with emulated.EmulatedCluster(hosts=2, bandwidth=2e8) as cluster:
        assert 0 < 8 * bandwidth.measure(cluster) <= 1.02 * 2e8


@needs_root
def test_links_do_not_depend_on_the_congestion_control_of_the_machine():
    connect = (
        "import socket, sys; connection = socket.create_connection((sys.argv[1], 9)); "
        "name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16); "
        "print(name.rstrip(bytes(1)).decode())"
    )
    listen = (
        "import socket; server = socket.create_server(('', 9)); print(flush=True); "
        "server.accept()[0].recv(1)"
    )
    with emulated.EmulatedCluster(hosts=2, bandwidth=1e9) as cluster:
        server = subprocess.Popen(
            cluster.command(1, [sys.executable, "-c", listen]), stdout=subprocess.PIPE
        )
        assert server.stdout.readline() == b"\n"
        client = cluster.command(0, [sys.executable, "-c", connect, cluster.hosts[1].address])
        used = subprocess.run(client, capture_output=True, text=True, check=True).stdout
        server.wait(timeout=30)
        server.stdout.close()
    assert used == "cubic\n"


@needs_root
def test_failure_of_a_rank_is_reported_and_the_cluster_removed():
    with (
        pytest.raises(LaunchError, match="exit code 3"),
        emulated.EmulatedCluster(hosts=2, bandwidth=1e9) as cluster,
        launch(cluster, ["sh", "-c", "exit 3"]) as lines,
    ):
        list(lines)
    assert _namespaces() == []


@needs_root
def test_program_that_is_silent_for_too_long_is_ended():
    command = ["sh", "-c", "echo begun; sleep 100"]
    with (
        pytest.raises(LaunchError, match="said nothing for 2 s on 2 hosts, and was ended"),
        emulated.EmulatedCluster(hosts=2, bandwidth=1e9) as cluster,
        launch(cluster, command, silence_s=2) as lines,
    ):
        assert [line for line in lines if line] == ["begun", "begun"]
    assert _namespaces() == []


@needs_root
def test_programs_end_with_the_block():
    with emulated.EmulatedCluster(hosts=2, bandwidth=1e9) as cluster:
        with pytest.raises(KeyboardInterrupt), launch(cluster, ["sleep", "100"]):
            raise KeyboardInterrupt
        subprocess.Popen(cluster.command(1, ["sleep", "100"]), start_new_session=True)
    assert _namespaces() == []


@needs_root
def test_leftovers_of_a_killed_benchmark_are_removed():
    program = (
        "import os, signal; from benchmarks.cluster.emulated import EmulatedCluster\n"
        "with EmulatedCluster(2, 1e9): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.Popen([sys.executable, "-c", program])
    killed.wait(60)
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert f"hvdp3-{killed.pid}-0" in listed
    emulated.remove_leftovers()
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert f"hvdp3-{killed.pid}-" not in listed


def test_other_users_are_told_what_is_missing(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(emulated.ClusterError, match="needs root"):
        emulated.EmulatedCluster(2, 1e9).__enter__()


def test_missing_tool_is_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(emulated.shutil, "which", lambda tool: None if tool == "tc" else tool)
    with pytest.raises(emulated.ClusterError, match="needs tc"):
        emulated.check_requirements()


@pytest.mark.parametrize("hosts", [0, 201])
def test_hosts_out_of_range_are_refused(hosts):
    with pytest.raises(emulated.ClusterError, match=f"hosts={hosts}"):
        emulated.EmulatedCluster(hosts, 1e9)


@needs_root
def test_ctrl_c_during_the_removal_leaves_nothing(monkeypatch):
    remove = emulated._remove_namespace

    def interrupted(name):
        os.kill(os.getpid(), signal.SIGINT)
        remove(name)

    monkeypatch.setattr(emulated, "_remove_namespace", interrupted)
    with emulated.EmulatedCluster(hosts=2, bandwidth=1e9):
        pass
    assert _namespaces() == []


@needs_root
def test_ctrl_c_while_a_namespace_is_made_leaves_nothing(monkeypatch):
    run = emulated._run

    def interrupted(*command):
        result = run(*command)
        if command[:3] == ("ip", "netns", "add"):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(emulated, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt), emulated.EmulatedCluster(hosts=2, bandwidth=1e9):
        pass
    assert _namespaces() == []


@needs_root
def test_settings_of_the_shell_do_not_reach_the_ranks(monkeypatch):
    for name in ("HVD_P3_SLICE_BYTES", "HOROVOD_CYCLE_TIME", "OMPI_MCA_btl"):
        monkeypatch.setenv(name, "from the shell")
    with (
        emulated.EmulatedCluster(hosts=2, bandwidth=1e9) as cluster,
        launch(cluster, ["env"], {"HVD_P3_CREDIT_BYTES": "7"}) as lines,
    ):
        variables = list(lines)
    assert variables.count("HVD_P3_CREDIT_BYTES=7") == 2
    assert not [each for each in variables if "from the shell" in each]
