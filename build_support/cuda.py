"""Finds CUDA and NCCL, which HVD_P3_WITH_CUDA=1 needs: those of the machine, or those that pip has
installed into this Python's folder site-packages/nvidia.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from build_support.errors import fail

OLDEST_CUDA = (11, 4)
OLDEST_NCCL = (2, 14)
USUAL_TOOLKIT = Path("/usr/local/cuda")


@dataclasses.dataclass
class Cuda:
    compiler: Path  # nvcc
    compiler_flags: tuple  # what nvcc must be told to find its runtime
    include: Path  # the folder of the runtime's headers
    runtime: Path  # libcudart_static.a
    nccl_include: Path
    nccl_library: Path

    def cmake_arguments(self):
        arguments = [
            "-DHVD_P3_WITH_CUDA=ON",
            f"-DCMAKE_CUDA_COMPILER={self.compiler}",
            f"-DHVD_P3_CUDA_INCLUDE_DIR={self.include}",
            f"-DHVD_P3_CUDART_LIBRARY={self.runtime}",
            f"-DHVD_P3_NCCL_INCLUDE_DIR={self.nccl_include}",
            f"-DHVD_P3_NCCL_LIBRARY={self.nccl_library}",
        ]
        if self.compiler_flags:
            arguments.append(f"-DCMAKE_CUDA_FLAGS={' '.join(self.compiler_flags)}")
        return arguments


def is_wanted():
    value = os.environ.get("HVD_P3_WITH_CUDA", "")
    if value not in ("", "0", "1"):
        fail(
            f"HVD_P3_WITH_CUDA is '{value}'; set it to 1 to build for NVIDIA GPUs, or to 0 or "
            "nothing to build without."
        )
    return value == "1"


def find():
    compiler, version = find_compiler()
    flags, include, runtime = find_runtime(compiler, version)
    nccl_include, nccl_library = find_nccl(version)
    return Cuda(compiler, flags, include, runtime, nccl_include, nccl_library)


def pip_folders(*names):
    """Returns the folders of these names that pip's NVIDIA packages have filled."""
    places = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    folders = [Path(place) / "nvidia" / name for place in places for name in names]
    return [folder for folder in folders if folder.is_dir()]


def find_compiler():
    """Returns the path of nvcc, and its version as a pair."""
    if os.environ.get("CUDACXX"):
        candidates = [os.environ["CUDACXX"]]
    elif os.environ.get("CUDA_HOME"):
        candidates = [Path(os.environ["CUDA_HOME"]) / "bin" / "nvcc"]
    else:
        toolkits = [USUAL_TOOLKIT, *pip_folders("cu13", "cuda_nvcc")]
        candidates = ["nvcc", *(toolkit / "bin" / "nvcc" for toolkit in toolkits)]
    found = next(filter(None, (shutil.which(str(each)) for each in candidates)), None)
    remedy = "install the CUDA toolkit, or set CUDA_HOME to its folder or CUDACXX to its nvcc."
    if found is None:
        fail(
            "HVD_P3_WITH_CUDA=1 needs CUDA's compiler nvcc, which was not found (looked for "
            f"{', '.join(map(str, candidates))}); {remedy}"
        )
    result = subprocess.run([found, "--version"], capture_output=True, text=True)
    match = re.search(r"release (\d+)\.(\d+)", result.stdout)
    if result.returncode != 0 or match is None:
        fail(f"{found} does not run; {remedy}")
    version = tuple(map(int, match.groups()))
    if version < OLDEST_CUDA:
        fail(f"{found} is of CUDA {match[1]}.{match[2]}, but hvd_p3 needs 11.4 or newer; {remedy}")
    return Path(found), version


def find_runtime(compiler, version):
    """Returns the flags that nvcc needs for CUDA's runtime, its headers' folder and its library.

    A toolkit's nvcc needs none. pip's does not know the folder lib/ beside it, and pip's packages
    for CUDA 12 have folders of their own.
    """
    toolkit, includes, libraries = folders_of(compiler)
    packages = pip_folders("cu13", "cuda_runtime")
    flags = []
    header = first_with("cuda_runtime.h", includes)
    if header is None:
        header = first_with("cuda_runtime.h", [folder / "include" for folder in packages])
        flags.append(f"-I{header}")
    library = first_with("libcudart_static.a", libraries)
    if library is None:
        beside = [toolkit / "lib64", toolkit / "lib", *(folder / "lib" for folder in packages)]
        library = first_with("libcudart_static.a", beside)
        flags.append(f"-L{library}")
    if header and library:
        return tuple(flags), header, library / "libcudart_static.a"
    missing = " and ".join(
        name
        for name, folder in (("cuda_runtime.h", header), ("libcudart_static.a", library))
        if folder is None
    )
    package = "nvidia-cuda-runtime" if version >= (13, 0) else f"nvidia-cuda-runtime-cu{version[0]}"
    fail(
        f"{compiler} was found, but not {missing} of CUDA's runtime (looked in {toolkit} and in "
        f"pip's packages); install the whole CUDA toolkit {version[0]}.{version[1]}, or "
        f"`pip install {package}`."
    )


def folders_of(compiler):
    """Returns nvcc's toolkit, and lists of where nvcc looks for headers and libraries.

    Asks nvcc: what is on PATH may be a script that calls it.
    """
    command = [compiler, "--dryrun", "-x", "cu", os.devnull]
    text = subprocess.run(command, capture_output=True, text=True).stderr
    top = re.search(r"^#\$ TOP=(.+)$", text, re.MULTILINE)
    toolkit = Path(top[1]).resolve() if top else compiler.resolve().parents[1]
    includes = re.findall(r'"-I([^"]+)"', text)
    libraries = re.findall(r'"-L([^"]+)"', text)
    return toolkit, list(map(Path, includes)), list(map(Path, libraries))


def first_with(name, folders):
    return next((folder for folder in folders if (folder / name).exists()), None)


def find_nccl(cuda_version):
    """Returns the folder of nccl.h and the path of NCCL's shared library."""
    if os.environ.get("NCCL_HOME"):
        roots = [Path(os.environ["NCCL_HOME"])]
    else:
        homes = [Path(os.environ["CUDA_HOME"])] if os.environ.get("CUDA_HOME") else []
        machine = [Path("/usr"), Path("/usr/local"), USUAL_TOOLKIT]
        roots = [*pip_folders("nccl"), *homes, *machine]
    package = f"nvidia-nccl-cu{cuda_version[0]}"
    remedy = (
        f"`pip install {package}`, install your system's packages of NCCL with its headers "
        "(Debian and Ubuntu: libnccl-dev), or set NCCL_HOME to the folder that has its include/ "
        "and lib/."
    )
    for root in roots:
        header = root / "include" / "nccl.h"
        folders = (root / "lib", root / "lib64", *sorted(root.glob("lib/*-linux-gnu")))
        names = ("libnccl.so", "libnccl.so.2")
        libraries = [folder / name for folder in folders for name in names]
        library = next((each for each in libraries if each.exists()), None)
        if header.exists() and library:
            check_nccl(header, cuda_version, remedy)
            return header.parent, library
    fail(
        "HVD_P3_WITH_CUDA=1 needs NCCL, but nccl.h and libnccl.so.2 were not found together "
        f"(looked in {', '.join(map(str, roots))}); {remedy}"
    )


def check_nccl(header, cuda_version, remedy):
    text = header.read_text(errors="replace")
    numbers = [re.search(rf"#define NCCL_{part} +(\d+)", text) for part in ("MAJOR", "MINOR")]
    version = tuple(int(number[1]) for number in numbers if number)
    if version < OLDEST_NCCL:
        shown = ".".join(map(str, version)) or "an unknown version"
        fail(f"{header} is of NCCL {shown}, but hvd_p3 needs 2.14.3 or newer; {remedy}")
