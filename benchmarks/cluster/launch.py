"""Runs an MPI program on the hosts of an emulated cluster, one rank per host."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import threading

_ON_HOST = pathlib.Path(__file__).parent / "on_host.sh"
_REMOTE_SHELL = pathlib.Path(__file__).parent / "remote_shell.sh"
_END_AFTER_S = 5.0
# How long a program may go on after the end of its output.
_LAST_S = 60.0
# How long a program may be silent. The longest silence is a start of TensorFlow on eight hosts of a
# slow machine, or some steps of the slowest system.
SILENCE_S = 300.0


# What changes a system is the benchmark's alone to say, not the user's shell.
_NOT_FROM_THE_SHELL = ("HOROVOD_", "HVD_P3_", "OMPI_MCA_")


class LaunchError(RuntimeError):
    """A program on the cluster failed; the message has the end of its output."""


@contextlib.contextmanager
def launch(cluster, command, environment=None, silence_s=SILENCE_S):
    """Starts a program on all hosts and yields the lines of its standard output.

    The options are those with which `horovodrun --mpi` starts Open MPI, so that all systems run as
    their users run them, and `mpi_yield_when_idle`, since all hosts share one machine. Settings of
    Horovod, hvd_p3 and Open MPI in this process's environment do not reach the ranks. Leaving the
    block before the last line ends the program.

    Args:
        cluster: `EmulatedCluster`.
        command: List of str.
        environment: dict of str to str, added to the environment of the ranks.
        silence_s: float. Seconds without a line after which a program is taken to hang, and ended.

    Yields:
        An iterator of str, without line ends; it ends with the program.

    Raises:
        LaunchError: If the program fails, is silent for too long, or does not end after its last
            line.

    Example:

    ```python
    with launch(cluster, ["hostname"]) as lines:
        print(sorted(lines))
    ```
    """
    environment = dict(environment or {})
    with tempfile.TemporaryDirectory(prefix="hvd_p3-benchmark-") as temporary:
        pathlib.Path(temporary, "hosts").write_text(_names(cluster))
        variables = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(_NOT_FROM_THE_SHELL)
            },
            **environment,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "HVD_P3_BENCHMARK_NAMESPACES": "\n".join(
                f"{host.address} {host.namespace} {host.name}" for host in cluster.hosts
            ),
            "HVD_P3_BENCHMARK_TEMPORARY": temporary,
            "TMPDIR": temporary,
        }
        errors = pathlib.Path(temporary, "stderr")
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                [*_mpirun(cluster, environment), *command],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        has_ended = False
        silence = _Silence(process, silence_s)

        def lines():
            nonlocal has_ended
            silence.begin()
            for line in process.stdout:
                silence.begin()
                yield line.rstrip("\n")
            has_ended = True

        try:
            yield lines()
        finally:
            silence.end()
            try:
                if has_ended:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_LAST_S)
            finally:
                _end(process)
                process.stdout.close()
                code = process.wait()
        if silence.was_too_long:
            raise LaunchError(
                f"`{' '.join(command)}` said nothing for {silence_s:g} s on {len(cluster.hosts)} "
                f"hosts, and was ended:\n{errors.read_text()[-4000:]}"
            )
        if has_ended and code != 0:
            raise LaunchError(
                f"`{' '.join(command)}` failed with exit code {code} on {len(cluster.hosts)} "
                f"hosts:\n{errors.read_text()[-4000:]}"
            )


class _Silence:
    """Ends a program that has not written a line for too long, from a thread of its own.

    Args:
        process: `subprocess.Popen`.
        seconds: float.
    """

    def __init__(self, process, seconds):
        self._process = process
        self._seconds = seconds
        self._timer = None
        self.was_too_long = False

    def begin(self):
        """Counts from now on."""
        self.end()
        self._timer = threading.Timer(self._seconds, self._end_program)
        self._timer.daemon = True
        self._timer.start()

    def end(self):
        """Counts no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _end_program(self):
        self.was_too_long = True
        _end(self._process)


def _names(cluster):
    """The /etc/hosts of every host. Gloo crashes where a host does not know its own name."""
    hosts = "".join(f"{host.address} {host.name}\n" for host in cluster.hosts)
    return f"127.0.0.1 localhost\n{hosts}"


def _mpirun(cluster, environment):
    first = cluster.hosts[0]
    hosts = ",".join(f"{host.address}:1" for host in cluster.hosts)
    # The launcher is a host of its own at no link: it lives where the first host is.
    return [
        str(_ON_HOST), first.namespace, first.name,
        "mpirun", "-np", str(len(cluster.hosts)), "--host", hosts,
        "-bind-to", "none", "-map-by", "slot", "-mca", "pml", "ob1", "-mca", "btl", "^openib",
        "-mca", "plm_rsh_agent", str(_REMOTE_SHELL), "-mca", "plm_rsh_no_tree_spawn", "1",
        "-mca", "btl_tcp_if_include", cluster.subnet, "-mca", "oob_tcp_if_include", cluster.subnet,
        # Ranks share the processors of one machine: one that waits lets the others run.
        "-mca", "mpi_yield_when_idle", "1",
        *(part for name in sorted(environment) for part in ("-x", name)),
    ]  # fmt: skip


def _end(process):
    """Ends mpirun, which ends its ranks; the cluster ends those that it leaves."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_AFTER_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
