"""What the installed Horovod can do, and what it uses in this job: Horovod's own answers. CUDA and
NCCL, which hvd_p3 may use without Horovod, are hvd_p3's.
"""

import horovod.tensorflow as horovod
from horovod.tensorflow import (
    ccl_built,
    ddl_built,
    gloo_built,
    mpi_built,
    rocm_built,
)

from hvd_p3 import _build_info, process

__all__ = [
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
]


def cuda_built():
    """Returns whether hvd_p3 was built to reduce gradients in the memory of NVIDIA GPUs."""
    return _build_info.CUDA_VERSION is not None


def nccl_built():
    """Returns whether hvd_p3 was built with NCCL: its version as NCCL counts, or 0 without.

    For example 22703 for NCCL 2.27.3. Horovod's own collectives may use another NCCL, or none:
    ask `horovod.tensorflow.nccl_built()`.
    """
    if _build_info.NCCL_VERSION is None:
        return 0
    major, minor, patch = map(int, _build_info.NCCL_VERSION.split("."))
    return 10000 * major + 100 * minor + patch


def mpi_enabled():
    """Returns whether this job's Horovod runs on MPI, which the priority queue needs."""
    process.current()
    return horovod.mpi_enabled()


def gloo_enabled():
    """Returns whether this job's Horovod runs on Gloo."""
    process.current()
    return horovod.gloo_enabled()


def mpi_threads_supported():
    """Returns whether MPI lets several threads call it at once; mpi4py can be used then."""
    process.current()
    return horovod.mpi_threads_supported()


def is_homogeneous():
    """Returns whether all hosts run equally many ranks."""
    process.current()
    return horovod.is_homogeneous()
