"""Finds what the build needs on this machine. Each miss ends it with one sentence: what was looked
for, and the remedy.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from build_support import cuda
from build_support.errors import fail

OLDEST_PYTHON = (3, 10)
OLDEST_TENSORFLOW = (2, 16)
NEWEST_TENSORFLOW = (2, 20)
OLDEST_CMAKE = (3, 25)
TENSORFLOW_PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm")
MPI_COMPILERS = ("mpicxx", "mpic++", "mpiCC")


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
        self.cuda = cuda.find() if cuda.is_wanted() else None
