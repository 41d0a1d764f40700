"""Measures hvd_p3 beside stock Horovod on an emulated cluster.

python -m benchmarks            # the short comparison, about six minutes
python -m benchmarks --full     # everything, about an hour
python -m benchmarks tune       # the search for Horovod's best settings
python -m benchmarks micro      # the engine without TensorFlow, a minute
python -m benchmarks shadow     # ShadowSync beside training without synchronisation, four minutes
python -m benchmarks validate   # the planner's simulation beside real steps, on 2 and 4 hosts and
                                # three bandwidths, 15 minutes
"""

import contextlib
import fcntl
import signal
import sys
from pathlib import Path

import rich.console

from benchmarks import arguments as command_line
from benchmarks import bandwidth, comparison, micro, native, shadow, tuning, validation
from benchmarks.cluster.emulated import ClusterError, check_requirements
from benchmarks.cluster.launch import LaunchError

_LOCK = Path(__file__).resolve().parent.parent / "build" / "benchmark.lock"
_COMMANDS = {
    "compare": comparison.compare,
    "tune": tuning.search,
    "micro": micro.measure,
    "shadow": shadow.run,
    "validate": validation.validate,
}


def main(arguments=None):
    # Ended like Ctrl-C, so that the cluster is removed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup makes it
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    parsed = command_line.parse(arguments, __doc__)
    console = rich.console.Console()
    if not console.is_terminal:
        console.width = 140  # a log file has no width of its own
    try:
        check_requirements()
        _prepare(parsed.output)
        with _alone():
            if parsed.command in ("tune", "micro", "validate"):
                native.build()
            _COMMANDS[parsed.command](parsed, console)
    except (ClusterError, LaunchError, native.BuildError, bandwidth.BandwidthError) as error:
        sys.exit(f"benchmarks: {error}")
    except KeyboardInterrupt:
        sys.exit("benchmarks: interrupted; the emulated cluster is removed")


def _prepare(folder):
    """Makes the folder for the results, before they are measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"benchmarks: --output must be a folder that can be made: {error}")


@contextlib.contextmanager
def _alone():
    """Ends the program if another benchmark runs: they would share processors, and disturb both."""
    _LOCK.parent.mkdir(exist_ok=True)
    with _LOCK.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"benchmarks: another benchmark of {_LOCK.parent.parent} is running")
        yield


if __name__ == "__main__":
    main()
