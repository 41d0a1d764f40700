"""Builds hvd_p3's C++ code with CMake against the installed TensorFlow and MPI.

Use it through pip, in an environment that has TensorFlow:
    pip install --no-build-isolation .        (or -e . to develop)

Environment variables: CXX and MPICXX choose the compilers, CMAKE the cmake
command, CMAKE_ARGS adds arguments to it, CMAKE_BUILD_PARALLEL_LEVEL limits the
parallel compilations.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info

ROOT = Path(__file__).resolve().parent
OLDEST_PYTHON = (3, 10)
OLDEST_TENSORFLOW = (2, 16)
NEWEST_TENSORFLOW = (2, 20)
OLDEST_CMAKE = (3, 25)
TENSORFLOW_PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm")
MPI_COMPILERS = ("mpicxx", "mpic++", "mpiCC")


def fail(sentence):
    """Ends the build; the sentence is the last line of its output."""
    sys.stdout.flush()
    sys.exit(f"hvd_p3: {sentence}")


def version_tuple(version):
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def find_tensorflow():
    """Returns TensorFlow's version and folder without importing it."""
    for package in TENSORFLOW_PACKAGES:
        try:
            version = importlib.metadata.version(package)
            break
        except importlib.metadata.PackageNotFoundError:
            continue
    else:
        fail(
            f"TensorFlow is not installed for {sys.executable}; run `pip install "
            "'tensorflow>=2.16,<2.21'` and then `pip install --no-build-isolation` hvd_p3 again."
        )
    if not OLDEST_TENSORFLOW <= version_tuple(version) <= NEWEST_TENSORFLOW:
        fail(
            f"TensorFlow {version} is installed, but hvd_p3 needs 2.16 to 2.20; run `pip install "
            "'tensorflow>=2.16,<2.21'` and then `pip install --no-build-isolation` hvd_p3 again."
        )
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        fail(
            f"TensorFlow {version} is listed as installed for {sys.executable} but its files are "
            f"missing; run `pip install --force-reinstall tensorflow=={version}`."
        )
    return version, str(Path(spec.origin).parent)


def find_mpi_compiler():
    candidates = [os.environ["MPICXX"]] if os.environ.get("MPICXX") else MPI_COMPILERS
    for candidate in candidates:
        path = shutil.which(candidate)
        if path:
            return path
    fail(
        f"no MPI compiler was found (looked for {', '.join(candidates)} on PATH); install Open MPI "
        "(`apt-get install openmpi-bin libopenmpi-dev`) or MPICH (`apt-get install mpich "
        "libmpich-dev`), or set MPICXX."
    )


def find_cxx_compiler():
    candidates = (
        [os.environ["CXX"].split()[0]] if os.environ.get("CXX") else ("c++", "g++", "clang++")
    )
    if not any(map(shutil.which, candidates)):
        fail(
            f"no C++ compiler was found (looked for {', '.join(candidates)} on PATH); install one "
            "(`apt-get install g++`), or set CXX."
        )


def find_cmake():
    cmake = shutil.which(os.environ.get("CMAKE", "cmake"))
    remedy = "install it with `pip install cmake`, or set CMAKE to the path of a newer one."
    if cmake is None:
        fail(f"CMake was not found on PATH; {remedy}")
    result = subprocess.run([cmake, "--version"], capture_output=True, text=True)
    if result.returncode != 0:
        fail(f"{cmake} does not run; {remedy}")
    version = result.stdout.split()[2]
    if version_tuple(version) < OLDEST_CMAKE:
        fail(f"{cmake} is CMake {version}, but hvd_p3 needs 3.25 or newer; {remedy}")
    return cmake


def find_pybind11():
    if importlib.util.find_spec("pybind11") is None:
        fail(
            f"pybind11 is not installed for {sys.executable}; run `pip install pybind11` and then "
            "`pip install --no-build-isolation` hvd_p3 again."
        )
    import pybind11

    return pybind11.get_cmake_dir()


class Prerequisites:
    """Everything the build needs from this machine, or a sentence on what is missing."""

    def __init__(self):
        if sys.version_info < OLDEST_PYTHON:
            version = sys.version.split()[0]
            fail(f"{sys.executable} is Python {version}, but hvd_p3 needs 3.10 or newer.")
        self.tensorflow_version, self.tensorflow_dir = find_tensorflow()
        find_cxx_compiler()
        self.mpi_compiler = find_mpi_compiler()
        self.cmake = find_cmake()
        self.pybind11_dir = find_pybind11()


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
