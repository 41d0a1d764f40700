"""The emulated cluster: one network namespace per host, joined by a bridge, with shaped links."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import threading
import time

_PREFIX = "hvdp3-"
_SUBNET = "10.77.0"
_KILL_AFTER_S = 2.0

# The token bucket of a link. The burst is what leaves at line speed after a pause. It holds the
# longest packet that the kernel forms, 64 KiB and headers; a shorter one would make the filter cut
# packets up, which costs much processor time. The queue is long enough that TCP, not packet loss,
# sets the pace.
_BURST_BYTES = 128 * 1024
_QUEUE_BYTES = 4 * 1024 * 1024
_CONGESTION_CONTROL = "cubic"  # the default of Linux


class ClusterError(RuntimeError):
    """The cluster cannot be made; the message says what is missing."""


@dataclasses.dataclass(frozen=True)
class Host:
    """One emulated host.

    Args:
        name: str. Its host name.
        namespace: str. The network namespace that it is.
        address: str. Its IPv4 address in the cluster.
    """

    name: str
    namespace: str
    address: str


class EmulatedCluster:
    """Hosts with links of one bandwidth, for as long as a `with` block runs.

    Each host is a network namespace, linked to a bridge in a namespace of its own, so that no
    packet enters or leaves the machine's own network. Both directions of each link are shaped by a
    token bucket filter. All is removed at the end of the block, also after an error or Ctrl-C;
    what a killed benchmark has left is removed by the next one.

    Args:
        hosts: int. Number of hosts.
        bandwidth: float. Of each link and direction, in bits per second.

    Raises:
        ClusterError: If the process is not root, or a tool or kernel feature is missing.

    Example:

    ```python
    with EmulatedCluster(hosts=4, bandwidth=1e9) as cluster:
        subprocess.run(cluster.command(0, ["ping", "-c1", cluster.hosts[1].address]))
    ```
    """

    def __init__(self, hosts, bandwidth):
        if not 1 <= hosts <= 200:
            raise ClusterError(f"an emulated cluster has 1 to 200 hosts. Received: hosts={hosts}")
        self.bandwidth = bandwidth
        self._switch = f"{_PREFIX}{os.getpid()}-switch"
        self.hosts = [
            Host(f"host{index}", f"{_PREFIX}{os.getpid()}-{index}", f"{_SUBNET}.{index + 1}")
            for index in range(hosts)
        ]
        self._cleanup = contextlib.ExitStack()

    def __enter__(self):
        check_requirements()
        remove_leftovers()
        try:
            self._add_switch()
            for index, host in enumerate(self.hosts):
                self._add_host(index, host)
            self.set_bandwidth(self.bandwidth)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *exception):
        self._remove()

    def _remove(self):
        with _uninterrupted():
            self._cleanup.close()

    @property
    def subnet(self):
        """The cluster's network, as in "10.0.0.0/24"."""
        return f"{_SUBNET}.0/24"

    def command(self, index, command):
        """Returns the command (a list of str) that runs `command` on a host."""
        return ["ip", "netns", "exec", self.hosts[index].namespace, *command]

    def set_bandwidth(self, bandwidth):
        """Changes the bandwidth of all links, in bits per second."""
        self.bandwidth = bandwidth
        for index, host in enumerate(self.hosts):
            self._shape(host.namespace, "eth0", bandwidth)
            self._shape(self._switch, f"port{index}", bandwidth)

    def set_link(self, index, connected):
        """Cuts a host's link, or connects it again."""
        state = "up" if connected else "down"
        _run("ip", "-n", self._switch, "link", "set", f"port{index}", state)

    def _add_namespace(self, name):
        self._cleanup.callback(_remove_namespace, name)  # first: Ctrl-C may come in between
        _run("ip", "netns", "add", name)
        _run("ip", "-n", name, "link", "set", "lo", "up")

    def _add_switch(self):
        self._add_namespace(self._switch)
        _run("ip", "-n", self._switch, "link", "add", "bridge0", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge0", "up")

    def _add_host(self, index, host):
        port = f"port{index}"
        self._add_namespace(host.namespace)
        here = ["ip", "-n", self._switch]
        _run(*here, "link", "add", port, "type", "veth", "peer", "eth0", "netns", host.namespace)
        _run(*here, "link", "set", port, "master", "bridge0", "up")
        there = ["ip", "-n", host.namespace]
        _run(*there, "address", "add", f"{host.address}/24", "dev", "eth0")
        _run(*there, "link", "set", "eth0", "up")
        # Not what this machine is set to: BBR, for one, all but pauses every ten seconds.
        _run(*there, "route", "change", self.subnet, "dev", "eth0", "proto", "kernel",
             "scope", "link", "src", host.address, "congctl", _CONGESTION_CONTROL)  # fmt: skip

    def _shape(self, namespace, device, bandwidth):
        _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf",
             "rate", f"{int(bandwidth)}bit", "burst", str(_BURST_BYTES),
             "limit", str(_QUEUE_BYTES))  # fmt: skip


def check_requirements():
    """Raises `ClusterError` if this process cannot make an emulated cluster."""
    if os.geteuid() != 0:
        raise ClusterError(
            "the emulated cluster is made of network namespaces, which needs root: run the "
            "benchmark as root or with sudo"
        )
    tools = ("ip", "tc", "unshare", "mount", "hostname", "mpirun")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise ClusterError(
            f"the emulated cluster needs {', '.join(missing)}: on Debian or Ubuntu run "
            "`apt-get install iproute2 util-linux mount hostname openmpi-bin`"
        )


def remove_leftovers():
    """Removes the namespaces of benchmarks that were killed before they could do so."""
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0] if line.split() else ""
        if not name.startswith(_PREFIX):
            continue
        owner = name[len(_PREFIX) :].partition("-")[0]
        if not os.path.exists(f"/proc/{owner}"):
            _remove_namespace(name)


@contextlib.contextmanager
def _uninterrupted():
    """Ignores further signals that would end the program, such as a second Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread
        return
    before = {
        each: signal.signal(each, signal.SIG_IGN)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _remove_namespace(name):
    """Ends the processes of a namespace, which the benchmark started, and deletes it."""
    if not os.path.exists(f"/run/netns/{name}"):
        return
    deadline = time.monotonic() + _KILL_AFTER_S
    while processes := _processes(name):
        late = time.monotonic() > deadline
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(0.05)
    _run("ip", "netns", "delete", name)


def _processes(namespace):
    return [int(process) for process in _run("ip", "netns", "pids", namespace).split()]


def _run(*command):
    """Runs a command in a session of its own, so that Ctrl-C does not interrupt a clean-up."""
    result = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if result.returncode != 0:
        raise ClusterError(
            f"`{' '.join(command)}` failed: {result.stderr.strip() or result.returncode}. The "
            "emulated cluster needs a kernel with network namespaces, veth, bridge, sch_tbf and "
            "tcp_cubic, and the right to use them (in a container: --privileged)"
        )
    return result.stdout
