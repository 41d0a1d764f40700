"""Says what hvd_p3 was built with, what it finds on this machine, and what does not fit.

Run it where the ranks run, with their environment, for example `horovodrun -np 1 hvd-p3 doctor`.
"""

import ctypes
import importlib
import importlib.util
import os
import platform
import runpy
from pathlib import Path

from hvd_p3_tools.command_line.errors import CommandError

_VARIABLES = ("NCCL_", "CUDA_VISIBLE_DEVICES", "HVD_P3_")


def add_arguments(parser):
    pass


def run(arguments):
    folder, build = _build()
    _show("hvd_p3", f"{build['HVD_P3_VERSION']}, in {folder}")
    _show("Python", f"{platform.python_version()}, on {platform.platform()}")
    _show("built with", f"TensorFlow {build['TENSORFLOW_VERSION']}, {build['MPI_LIBRARY']}")
    has_nccl = build["NCCL_VERSION"] is not None
    if has_nccl:
        gpus = f"yes, with CUDA {build['CUDA_VERSION']} and NCCL {build['NCCL_VERSION']}"
    else:
        gpus = "no: gradients are reduced in host memory, over MPI"
    _show("built for GPUs", gpus)
    failure = _import()
    _show("loads", "yes" if failure is None else "no")
    nccl = _loaded_nccl() if has_nccl and failure is None else None
    if has_nccl:
        _show("NCCL at run time", f"{nccl[0]}, {nccl[1]}" if nccl else "not loaded")
    devices = _gpus()
    if devices is not None:
        _show("GPUs of TensorFlow", "; ".join(devices) or "none")
    variables = [name for name in sorted(os.environ) if name.startswith(_VARIABLES)]
    _show(
        "environment", ", ".join(f"{name}={os.environ[name]}" for name in variables) or "none set"
    )
    for warning in _warnings(build, devices, nccl[0] if nccl else None):
        print(f"warning: {warning}.")
    if failure is not None:
        raise CommandError(failure)


def _show(name, value):
    print(f"{name + ':':<20}{value}")


def _build():
    """Returns hvd_p3's folder, and what `_build_info.py` says, without importing TensorFlow."""
    spec = importlib.util.find_spec("hvd_p3")
    if spec is None or spec.origin is None:
        raise CommandError("hvd_p3 is not installed for this Python; see its README")
    folder = Path(spec.origin).parent
    file = folder / "_build_info.py"
    if not file.exists():
        raise CommandError(
            f"hvd_p3's C++ library was not built ({file} is missing); run `pip install "
            "--no-build-isolation --no-deps .` in its source folder, and the command elsewhere"
        )
    return folder, runpy.run_path(str(file))


def _import():
    """Imports hvd_p3. Returns why that fails, or None."""
    try:
        importlib.import_module("hvd_p3")
    except ImportError as error:
        return str(error).rstrip(".")
    return None


def _loaded_nccl():
    """Returns the version and the path of the NCCL that hvd_p3's library has loaded, or None."""
    try:
        nccl = ctypes.CDLL("libnccl.so.2")  # the one that is loaded
    except OSError:
        return None
    version = ctypes.c_int()
    if nccl.ncclGetVersion(ctypes.byref(version)) != 0:
        return None
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    path = next((name for name in sorted(mapped) if "/libnccl.so" in name), "path unknown")
    return _nccl_version(version.value), path


def _nccl_version(code):
    """Returns, for example, "2.32.3" for 23203: how NCCL counts since 2.9."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def _gpus():
    """Returns a line for each GPU that TensorFlow sees, or None without TensorFlow."""
    try:
        import tensorflow as tf
    except ImportError:
        return None
    lines = []
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        name = details.get("device_name", "unknown model")
        capability = ".".join(map(str, details.get("compute_capability", ())))
        lines.append(f"{gpu.name.split(':', 1)[1]} {name} {capability}".rstrip())
    return lines


def _warnings(build, devices, nccl):
    """Yields what does not fit.

    Args:
        build: dict, the names of `_build_info.py`.
        devices: list of str, the GPUs that TensorFlow sees, or None.
        nccl: str, the version of NCCL at run time, or None.
    """
    if build["NCCL_VERSION"] is None:
        if devices:
            yield (
                "TensorFlow sees a GPU, but hvd_p3 was built without CUDA, so gradients are copied "
                "to host memory and reduced over MPI; rebuild hvd_p3 with HVD_P3_WITH_CUDA=1, see "
                "docs/gpu.md"
            )
        return
    if devices is not None and not devices:
        yield (
            "hvd_p3 was built with CUDA, but TensorFlow sees no GPU; look at `nvidia-smi` and "
            "CUDA_VISIBLE_DEVICES, and install a TensorFlow for GPUs (`pip install "
            "'tensorflow[and-cuda]'`)"
        )
    if nccl is not None and _pair(nccl) < _pair(build["NCCL_VERSION"]):
        yield (
            f"NCCL {nccl} is loaded, older than {build['NCCL_VERSION']}, with which hvd_p3 was "
            "built; put the newer one in front on LD_LIBRARY_PATH, or rebuild hvd_p3"
        )


def _pair(version):
    return tuple(map(int, version.split(".")[:2]))
