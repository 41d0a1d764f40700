"""Says what hvd_p3 was built with, what it finds on this machine, and what does not fit.

Run it where the ranks run, with their environment, for example `horovodrun -np 1 hvd-p3 doctor`.
"""

import contextlib
import os
import threading

from hvd_p3_tools.command_line.errors import CommandError
from hvd_p3_tools.doctor import advice, findings

_MPI_START_S = 60.0


def add_arguments(parser):
    parser.add_argument(
        "--without-mpi", action="store_true", help="do not start MPI to see whether it works"
    )


def run(arguments):
    try:
        found = findings.find()
    except findings.NotInstalled as error:
        raise CommandError(str(error)) from None
    for name, value in _lines(found):
        _show(name, value)
    failure = found.failure
    if failure is None and not arguments.without_mpi:
        failure = _show_mpi(found)
    for warning in advice.warnings(found):
        print(f"warning: {warning}.")
    if failure is not None:
        raise CommandError(failure)


def _lines(found):
    """Yields (name, value) of what is known without MPI."""
    build = found.build
    yield "hvd_p3", f"{build['HVD_P3_VERSION']}, in {found.folder}"
    yield "Python", findings.system()
    for package, version in found.versions.items():
        yield package, version or "not installed"
    built_with = [f"TensorFlow {build['TENSORFLOW_VERSION']}", build["MPI_LIBRARY"]]
    if found.has_nccl:
        built_with += [f"CUDA {build['CUDA_VERSION']}", f"NCCL {build['NCCL_VERSION']}"]
    yield "built with", ", ".join(built_with)
    gpus = "GPU memory over NCCL" if found.has_nccl else "none for GPU memory"
    yield "transports", f"host memory over MPI, or within one rank; {gpus}"
    yield "loads", "yes" if found.failure is None else "no"
    if found.has_nccl:
        yield "NCCL at run time", ", ".join(found.nccl) if found.nccl else "not loaded"
    if found.gpus is not None:
        yield "GPUs of TensorFlow", "; ".join(found.gpus) or "none"
    for interface in found.interfaces:
        speed = f", {interface.speed} Mbit/s" if interface.speed else ""
        yield f"network {interface.name}", (", ".join(interface.addresses) or "no address") + speed
    variables = [f"{name}={value}" for name, value in found.environment.items()]
    yield "environment", ", ".join(variables) or "none set"


def _show(name, value):
    print(f"{name + ':':<20}{value}", flush=True)


def _show_mpi(found):
    """Starts MPI, and shows what it is. Returns why it does not start, or `None`."""
    try:
        with _ended_after(_MPI_START_S):
            findings.ask_mpi(found)
    except RuntimeError as error:
        return str(error)
    _show("MPI at run time", f"{found.mpi_library}, {found.mpi_threads}")
    return None


@contextlib.contextmanager
def _ended_after(seconds):
    """A context in which a call of MPI that hangs ends the process, with a message."""

    def end():
        _show("MPI at run time", "does not start")
        print(
            f"warning: MPI did not start within {seconds:g} s; try `mpirun -np 1 hostname`, and "
            "look at the network interfaces above (with Open MPI: `--mca btl_tcp_if_include`).",
            flush=True,
        )
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
