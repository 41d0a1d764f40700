"""What the installed Horovod can do, and what it uses in this job. Horovod's own answers."""

import horovod.tensorflow as horovod
from horovod.tensorflow import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    mpi_built,
    nccl_built,
    rocm_built,
)

from hvd_p3 import process

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
