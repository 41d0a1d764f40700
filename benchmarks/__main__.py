"""Measures hvd_p3 beside stock Horovod on an emulated cluster.

python -m benchmarks            # the short comparison, about six minutes
python -m benchmarks --full     # everything, about an hour
python -m benchmarks tune       # the search for Horovod's best settings
python -m benchmarks micro      # the engine without TensorFlow, a minute
python -m benchmarks shadow     # ShadowSync beside training without synchronisation, four minutes
python -m benchmarks validate   # the planner's simulation beside real steps, on 2 and 4 hosts and
                                # three bandwidths, 15 minutes
"""

import signal
import sys

import rich.console

from benchmarks import arguments as command_line
from benchmarks import comparison, micro, native, shadow, tuning, validation
from benchmarks.cluster.emulated import ClusterError, check_requirements
from benchmarks.cluster.launch import LaunchError

_COMMANDS = {
    "compare": comparison.compare,
    "tune": tuning.search,
    "micro": micro.measure,
    "shadow": shadow.run,
    "validate": validation.validate,
}


def main(arguments=None):
    # Ended like Ctrl-C, so that the cluster is removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parsed = command_line.parse(arguments, __doc__)
    console = rich.console.Console()
    if not console.is_terminal:
        console.width = 140  # a log file has no width of its own
    try:
        check_requirements()
        if parsed.command in ("tune", "micro", "validate"):
            native.build()
        _COMMANDS[parsed.command](parsed, console)
    except (ClusterError, LaunchError, native.BuildError) as error:
        sys.exit(f"benchmarks: {error}")
    except KeyboardInterrupt:
        sys.exit("benchmarks: interrupted; the emulated cluster is removed")


if __name__ == "__main__":
    main()
