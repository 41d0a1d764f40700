"""The benchmark's programs in C++, and how they are built."""

import json
import os
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).parent
_BUILD = _SOURCE.parent.parent / "build" / "benchmarks"
ENGINE_BENCHMARK = _BUILD / "engine_benchmark"
REPLAY_OPS = _BUILD / "replay_ops.so"

# In a process of its own: importing TensorFlow takes seconds and much memory.
_TENSORFLOW_FLAGS = """
import json, tensorflow as tf
print(json.dumps([tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()]))
"""


class BuildError(RuntimeError):
    """The programs cannot be built; the message has the compiler's output."""


def build():
    """Builds what is missing or out of date, in `build/benchmarks`.

    Raises:
        BuildError: If CMake, MPI or a compiler is missing or fails.
    """
    if not (_BUILD / "Makefile").exists():
        compile_flags, link_flags = json.loads(
            _run([sys.executable, "-c", _TENSORFLOW_FLAGS]).splitlines()[-1]
        )
        folders = [flag[2:] for flag in compile_flags if flag.startswith("-I")]
        definitions = [flag[2:] for flag in compile_flags if flag.startswith("-D")]
        _run(
            [
                *("cmake", "-S", str(_SOURCE), "-B", str(_BUILD), "-G", "Unix Makefiles"),
                f"-DHVD_P3_TENSORFLOW_INCLUDE_DIRS={';'.join(folders)}",
                f"-DHVD_P3_TENSORFLOW_DEFINITIONS={';'.join(definitions)}",
                f"-DHVD_P3_TENSORFLOW_LINK_FLAGS={';'.join(link_flags)}",
            ]
        )
    _run(["cmake", "--build", str(_BUILD), "--parallel", str(os.cpu_count())])


def _run(command):
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not installed; run `make setup` first") from error
    if result.returncode != 0:
        raise BuildError(
            f"`{' '.join(command)}` failed:\n{(result.stdout + result.stderr)[-3000:]}"
        )
    return result.stdout
