"""What there is on this machine: versions, libraries, devices, networks, settings."""

import ctypes
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import runpy
import socket
import warnings
from pathlib import Path

# Of other software, what changes how hvd_p3 communicates.
_PREFIXES = ("HVD_P3_", "HOROVOD_", "NCCL_", "UCX_")
_PREFIXES += tuple(f"OMPI_MCA_{name}" for name in ("btl", "coll", "mpi_", "pml"))
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "KERAS_BACKEND", "TF_USE_LEGACY_KERAS")


class NotInstalled(Exception):
    """There is no hvd_p3 to look at; the message says what to do."""


@dataclasses.dataclass
class Findings:
    """Everything that was found out. `None` is "unknown".

    Attributes:
        folder: Path of the package hvd_p3.
        build: dict, the names of its `_build_info.py`.
        failure: str. Why hvd_p3 cannot be imported, or `None`.
        versions: dict of package name to its installed version, or `None`.
        nccl: (version, path) of the NCCL that is loaded, or `None`.
        gpus: list of str, a line for each GPU that TensorFlow sees, or `None`.
        interfaces: list of `Interface`, the networks of this host.
        environment: dict of the variables that matter.
        complaints: list of str, what hvd_p3 says of its settings.
        mpi_library: str. The MPI that is loaded.
        mpi_threads: str. MPI's thread level, for example "MPI_THREAD_MULTIPLE".
    """

    folder: Path
    build: dict
    failure: str = None
    versions: dict = dataclasses.field(default_factory=dict)
    nccl: tuple = None
    gpus: list = None
    interfaces: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    complaints: list = dataclasses.field(default_factory=list)
    mpi_library: str = None
    mpi_threads: str = None

    @property
    def has_nccl(self):
        return self.build["NCCL_VERSION"] is not None


@dataclasses.dataclass
class Interface:
    """A network interface that is up. `speed` is in Mbit/s, 0 if unknown."""

    name: str
    addresses: list
    speed: int = 0

    @property
    def is_loopback(self):
        return all(address.startswith("127.") or address == "::1" for address in self.addresses)


def find():
    """Looks at everything but MPI, see `ask_mpi`.

    Raises:
        NotInstalled: If there is no hvd_p3, or its C++ library was not built.
    """
    folder, build = _build()
    findings = Findings(folder, build, failure=_import())
    packages = ("tensorflow", "keras", "horovod", "numpy")
    findings.versions = {package: _version(package) for package in packages}
    if findings.failure is None:
        findings.complaints = _complaints()
        if findings.has_nccl:
            findings.nccl = _loaded_nccl()
    findings.gpus = _gpus()
    findings.interfaces = _interfaces()
    findings.environment = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_PREFIXES) or name in _VARIABLES
    }
    return findings


def ask_mpi(findings):
    """Starts and ends MPI in this process, to see whether it can be used. May hang where it cannot.

    Raises:
        RuntimeError: If MPI does not start.
    """
    engine = importlib.import_module("hvd_p3._engine")
    library, findings.mpi_threads = engine.try_mpi()
    findings.mpi_library = mpi_name(library)


def mpi_name(library):
    """Returns name and version, as `_build_info.py` has them, of what MPI_Get_library_version says.

    For example "Open MPI 4.1.4" for "Open MPI v4.1.4, package: …".
    """
    first = re.split(r"[,\n]", library, maxsplit=1)[0]
    return re.sub(
        r"\s+", " ", first.replace("Open MPI v", "Open MPI ").replace("Version:", "")
    ).strip()


def system():
    """Returns the versions of Python and the operating system."""
    return f"{platform.python_version()}, on {platform.platform()}"


def _build():
    """Returns hvd_p3's folder, and what `_build_info.py` says, without importing TensorFlow."""
    spec = importlib.util.find_spec("hvd_p3")
    if spec is None or spec.origin is None:
        raise NotInstalled("hvd_p3 is not installed for this Python; see its README")
    folder = Path(spec.origin).parent
    file = folder / "_build_info.py"
    if not file.exists():
        raise NotInstalled(
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
    except Exception as error:  # libraries that do not fit: TensorFlow's NotFoundError, OSError
        return f"hvd_p3 cannot be imported: {type(error).__name__}: {error}".rstrip(".")
    return None


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _complaints():
    """Returns what hvd_p3 says of the environment variables of its settings."""
    configuration = importlib.import_module("hvd_p3.configuration")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            configuration.load({})
        except ValueError as error:
            return [str(error)]
    return [str(warning.message).rstrip(".") for warning in caught]


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
    try:
        import tensorflow as tf
    except Exception:  # one that is broken; why hvd_p3 cannot be imported says more
        return None
    lines = []
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        name = details.get("device_name", "unknown model")
        capability = ".".join(map(str, details.get("compute_capability", ())))
        lines.append(f"{gpu.name.split(':', 1)[1]} {name} {capability}".rstrip())
    return lines


def _interfaces():
    try:
        import psutil  # comes with Horovod
    except ImportError:
        return []
    addresses = psutil.net_if_addrs()
    families = (socket.AF_INET, socket.AF_INET6)
    return [
        Interface(
            name,
            [each.address for each in addresses.get(name, []) if each.family in families],
            state.speed,
        )
        for name, state in sorted(psutil.net_if_stats().items())
        if state.isup
    ]
