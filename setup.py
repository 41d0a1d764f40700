"""Builds hvd_p3's C++ code with CMake against the installed TensorFlow and MPI.

Use it through pip, in an environment that has TensorFlow:
    pip install --no-build-isolation .        (or -e . to develop)

Environment variables: CXX and MPICXX choose the compilers, CMAKE the cmake
command, CMAKE_ARGS adds arguments to it, CMAKE_BUILD_PARALLEL_LEVEL limits the
parallel compilations. HVD_P3_WITH_CUDA=1 adds reductions in the memory of NVIDIA
GPUs; CUDA_HOME or CUDACXX and NCCL_HOME choose CUDA and NCCL.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # pip runs this file from elsewhere

from build_support.errors import fail  # noqa: E402
from build_support.prerequisites import Prerequisites  # noqa: E402


def tensorflow_flags(prerequisites):
    """Asks TensorFlow, in a process of its own, for its compile and link flags."""
    script = (
        "import json, tensorflow as tf; "
        "print(json.dumps([tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()]))"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        fail(
            f"TensorFlow {prerequisites.tensorflow_version} is installed but cannot be imported "
            f"({reason}); repair it until `python -c 'import tensorflow'` works."
        )
    compile_flags, link_flags = json.loads(result.stdout.splitlines()[-1])
    return {
        "includes": [flag[2:] for flag in compile_flags if flag.startswith("-I")],
        "definitions": [flag[2:] for flag in compile_flags if flag.startswith("-D")],
        "links": link_flags,
    }


def describe_machine(prerequisites, build_dir):
    """Returns what CMake depends on; forgets CMake's cache when it has changed."""
    record = build_dir / "machine.json"
    show = subprocess.run([prerequisites.mpi_compiler, "-show"], capture_output=True, text=True)
    machine = {
        "tensorflow": [prerequisites.tensorflow_version, prerequisites.tensorflow_dir],
        "mpi": [prerequisites.mpi_compiler, show.stdout.strip()],
        "cxx": os.environ.get("CXX", ""),
        "python": sys.executable,
        "cuda": prerequisites.cuda and [str(path) for path in vars(prerequisites.cuda).values()],
    }
    before = json.loads(record.read_text()) if record.exists() else {}
    if before.get("tensorflow") == machine["tensorflow"]:
        machine["flags"] = before["flags"]
    else:
        machine["flags"] = tensorflow_flags(prerequisites)
    if before != machine:
        build_dir.mkdir(parents=True, exist_ok=True)
        (build_dir / "CMakeCache.txt").unlink(missing_ok=True)
        record.write_text(json.dumps(machine, indent=1))
    return machine


class CMakeBuild(build_ext):
    """Configures, builds and installs all shared objects in one go."""

    def run(self):
        prerequisites = Prerequisites()
        tag = f"{sys.implementation.cache_tag}-tensorflow-{prerequisites.tensorflow_version}"
        if prerequisites.cuda:
            tag += "-cuda"
        build_dir = ROOT / "build" / tag
        flags = describe_machine(prerequisites, build_dir)["flags"]
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or len(os.sched_getaffinity(0))
        cmake = prerequisites.cmake
        self.run_cmake(
            "configure",
            [cmake, "-S", ROOT, "-B", build_dir]
            + [
                f"-DHVD_P3_VERSION={self.distribution.get_version()}",
                f"-DHVD_P3_TENSORFLOW_VERSION={prerequisites.tensorflow_version}",
                f"-DHVD_P3_TENSORFLOW_INCLUDE_DIRS={';'.join(flags['includes'])}",
                f"-DHVD_P3_TENSORFLOW_DEFINITIONS={';'.join(flags['definitions'])}",
                f"-DHVD_P3_TENSORFLOW_LINK_FLAGS={';'.join(flags['links'])}",
                f"-DMPI_CXX_COMPILER={prerequisites.mpi_compiler}",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-Dpybind11_DIR={prerequisites.pybind11_dir}",
            ]
            + (prerequisites.cuda.cmake_arguments() if prerequisites.cuda else [])
            + shlex.split(os.environ.get("CMAKE_ARGS", "")),
        )
        self.run_cmake("compile", [cmake, "--build", build_dir, "--parallel", str(jobs)])
        destination = ROOT if self.inplace else Path(self.build_lib).resolve()
        self.run_cmake("install", [cmake, "--install", build_dir, "--prefix", destination])

    def run_cmake(self, step, command):
        sys.stdout.flush()
        if subprocess.run([str(word) for word in command]).returncode != 0:
            fail(f"the C++ code did not {step}; the reason is in CMake's output above.")

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


class CheckedDistInfo(dist_info):
    """Checks the prerequisites before pip downloads dependencies or builds anything."""

    def run(self):
        Prerequisites()
        super().run()


setup(
    # Makes the wheel specific to this platform and runs CMakeBuild.
    ext_modules=[Extension("hvd_p3._engine", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "dist_info": CheckedDistInfo},
)
