"""The command `hvd-p3`, and its errors."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import timelines

from hvd_p3_tools import command_line
from hvd_p3_tools.doctor import findings
from hvd_p3_tools.timeline import chrome_trace
from hvd_p3_tools.timeline.model import Rank, Timeline

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def timeline_file(tmp_path):
    path = tmp_path / "timeline.json"
    with path.open("w") as file:
        chrome_trace.write(timelines.timeline(), file)
    return path


def _run(capsys, *arguments):
    code = command_line.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_timeline_prints_numbers_and_draws(timeline_file, capsys):
    code, output, errors = _run(capsys, "timeline", timeline_file)
    assert (code, errors) == (0, "")
    assert "26.0 ms" in output
    assert "it was not ready on rank 1 (10.0 ms)" in output
    assert "13 %" in output  # hidden on rank 0
    picture = timeline_file.with_suffix(".png")
    assert str(picture) in output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_timeline_draws_what_is_asked_for(timeline_file, capsys, tmp_path):
    picture = tmp_path / "other.png"
    arguments = ["--picture", picture, "--from", 0.01, "--to", 0.05, "--waits", 0]
    code, output, _ = _run(capsys, "timeline", timeline_file, *arguments)
    assert code == 0
    assert "0.010 s to 0.050 s" in output
    assert "Longest waits" not in output
    assert picture.exists()


def test_timeline_without_communication(tmp_path, capsys):
    path = tmp_path / "timeline.json"
    with path.open("w") as file:
        chrome_trace.write(Timeline([Rank(0, "host", 0, 10**9, dropped=3)]), file)
    code, output, _ = _run(capsys, "timeline", path)
    assert code == 0
    assert "No gradients went through the priority queue" in output
    assert "dropped 3 events" in output
    assert list(tmp_path.glob("*.png")) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        ("", "is empty"),
        ("no json", "is not JSON"),
        ("[]", "Horovod"),
        ('{"otherData": {"hvd_p3_timeline": 1, "ranks": [{}]}}', "is damaged: KeyError"),
    ],
)
def test_timeline_of_a_file_that_is_none(tmp_path, capsys, content, message):
    path = tmp_path / "timeline.json"
    if content is not None:
        path.write_text(content)
    code, output, errors = _run(capsys, "timeline", path)
    assert (code, output) == (1, "")
    assert errors.startswith("hvd-p3 timeline: ")
    assert message in errors
    assert str(path) in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "2", "--to", "1"], "nothing lies between"),
        (["--from", "nan"], "--from must be a number"),
        (["--waits", "-1"], "--waits must be at least 0"),
        (["--picture", "/nowhere/at/all.png"], "cannot write /nowhere/at/all.png"),
    ],
)
def test_timeline_refuses_what_makes_no_sense(timeline_file, capsys, arguments, message):
    code, _, errors = _run(capsys, "timeline", timeline_file, *arguments)
    assert code == 1
    assert message in errors


@pytest.mark.parametrize("package", ["rich.console", "matplotlib"])
def test_missing_packages_are_named(timeline_file, capsys, monkeypatch, package):
    for module in list(sys.modules):
        if module.startswith(("matplotlib", "hvd_p3_tools.timeline.")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    import hvd_p3_tools.timeline

    for name in ("boxes", "drawing"):
        monkeypatch.delattr(hvd_p3_tools.timeline, name, raising=False)
    code, _, errors = _run(capsys, "timeline", timeline_file)
    assert code == 1
    assert f"the package {package.split('.')[0]} cannot be imported" in errors
    assert "pip install matplotlib pint rich scipy" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["timeline"], ["timeline", "a", "b"]])
def test_wrong_arguments(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        command_line.main(arguments)
    assert ended.value.code == 2
    assert "usage: hvd-p3" in capsys.readouterr().err


_WITHOUT_CUDA = {
    "HVD_P3_VERSION": "0.1.0",
    "TENSORFLOW_VERSION": "2.20.0",
    "MPI_LIBRARY": "Open MPI 4.1.4",
    "CUDA_VERSION": None,
    "NCCL_VERSION": None,
}
_WITH_CUDA = _WITHOUT_CUDA | {"CUDA_VERSION": "13.0", "NCCL_VERSION": "2.27.3"}
_GPU = "GPU:0 NVIDIA H200 9.0"


@pytest.fixture
def doctor_finds(monkeypatch):
    """Makes the doctor find what a test says, and an MPI that works."""

    def finds(build, threads="MPI_THREAD_MULTIPLE", **found):
        result = findings.Findings(Path("/packages/hvd_p3"), build, **found)
        monkeypatch.setattr(findings, "find", lambda: result)

        def ask_mpi(asked):
            asked.mpi_library, asked.mpi_threads = "Open MPI 4.1.4", threads

        monkeypatch.setattr(findings, "ask_mpi", ask_mpi)

    return finds


def test_doctor_on_this_machine(capsys, monkeypatch):
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    monkeypatch.setenv("HVD_P3_SLICE_BITES", "1000")
    code, output, errors = _run(capsys, "doctor", "--without-mpi")
    assert (code, errors) == (0, "")
    assert "Open MPI" in output or "MPICH" in output
    assert re.search(r"tensorflow: +2\.", output)
    assert re.search(r"horovod: +0\.28", output)
    assert re.search(r"network lo: +127\.0\.0\.1", output)
    assert "NCCL_SOCKET_IFNAME=eth0" in output
    assert "loads:              yes" in output
    assert "GPUs of TensorFlow: none" in output
    assert "HVD_P3_SLICE_BITES is no setting" in output
    assert "did you mean HVD_P3_SLICE_BYTES?" in output


def test_doctor_for_a_build_with_cuda(doctor_finds, capsys):
    doctor_finds(_WITH_CUDA, gpus=[_GPU], nccl=("2.28.1", "/nccl/libnccl.so.2"))
    code, output, errors = _run(capsys, "doctor")
    assert (code, errors) == (0, "")
    assert "CUDA 13.0, NCCL 2.27.3" in output
    assert "GPU memory over NCCL" in output
    assert "2.28.1, /nccl/libnccl.so.2" in output
    assert "Open MPI 4.1.4, MPI_THREAD_MULTIPLE" in output
    assert _GPU in output
    assert "warning" not in output


_LOOPBACK = findings.Interface("lo", ["127.0.0.1", "::1"])
_TWO_NETWORKS = [
    findings.Interface("docker0", ["172.17.0.1"]),
    findings.Interface("eth0", ["10.0.0.1"]),
]


@pytest.mark.parametrize(
    ("build", "found", "warning"),
    [
        (_WITHOUT_CUDA, {"gpus": [_GPU]}, "was built without CUDA"),
        (_WITH_CUDA, {"gpus": []}, "TensorFlow sees no GPU"),
        (
            _WITH_CUDA,
            {"gpus": [_GPU], "nccl": ("2.19.3", "/nccl/libnccl.so.2")},
            "NCCL 2.19.3 is loaded, older than 2.27.3",
        ),
        (_WITHOUT_CUDA, {"threads": "MPI_THREAD_FUNNELED"}, "MPI offers MPI_THREAD_FUNNELED"),
        (_WITHOUT_CUDA | {"MPI_LIBRARY": "MPICH 4.0.2"}, {}, "but hvd_p3 was built with MPICH"),
        (_WITHOUT_CUDA, {"versions": {"tensorflow": "2.19.0"}}, "TensorFlow 2.19.0 is installed"),
        (_WITHOUT_CUDA, {"versions": {"horovod": None}}, "Horovod is not installed"),
        (_WITHOUT_CUDA, {"interfaces": [_LOOPBACK]}, "no network interface but the loopback"),
        (
            _WITHOUT_CUDA,
            {"interfaces": [_LOOPBACK, *_TWO_NETWORKS]},
            "(docker0, eth0), and Open MPI over TCP uses all",
        ),
        (_WITHOUT_CUDA, {"complaints": ["HVD_P3_X is no setting"]}, "HVD_P3_X is no setting"),
    ],
)
def test_doctor_warns(doctor_finds, capsys, build, found, warning):
    doctor_finds(build, **found)
    code, output, _ = _run(capsys, "doctor")
    assert code == 0
    (line,) = [line for line in output.splitlines() if line.startswith("warning: ")]
    assert warning in line


def test_doctor_does_not_warn_of_networks_where_one_is_chosen(doctor_finds, capsys):
    chosen = {"OMPI_MCA_btl_tcp_if_include": "eth0"}
    doctor_finds(_WITHOUT_CUDA, interfaces=_TWO_NETWORKS, environment=chosen)
    code, output, _ = _run(capsys, "doctor")
    assert code == 0
    assert "warning" not in output


@pytest.mark.parametrize(
    "error",
    [
        OSError("libmpi.so.40: cannot open shared object file"),
        tf.errors.NotFoundError(None, None, "_tensorflow_ops.so: undefined symbol: _ZN"),
    ],
)
def test_doctor_says_which_library_does_not_fit(capsys, monkeypatch, error):
    import_module = importlib.import_module

    def fail(name):
        if name == "hvd_p3":
            raise error
        return import_module(name)

    monkeypatch.setattr(importlib, "import_module", fail)
    code, output, errors = _run(capsys, "doctor")
    assert code == 1
    assert f"hvd_p3 cannot be imported: {type(error).__name__}" in errors
    assert str(error).rstrip(".") in errors
    assert "loads:              no" in output


def test_doctor_says_why_hvd_p3_cannot_be_imported(doctor_finds, capsys):
    doctor_finds(_WITH_CUDA, failure="libnccl.so.2: cannot open shared object file")
    code, output, errors = _run(capsys, "doctor")
    assert code == 1
    assert errors == "hvd-p3 doctor: libnccl.so.2: cannot open shared object file\n"
    assert "NCCL at run time:   not loaded" in output
    assert "MPI at run time" not in output


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", "Open MPI 4.1.4"),
        ("MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7", "MPICH 4.0.2"),
        ("Intel(R) MPI Library 2021.9", "Intel(R) MPI Library 2021.9"),
    ],
)
def test_name_of_mpi(said, name):
    assert findings.mpi_name(said) == name


def test_doctor_says_why_mpi_does_not_start(doctor_finds, capsys, monkeypatch):
    doctor_finds(_WITHOUT_CUDA)

    def fail(found):
        raise RuntimeError("MPI_Init_thread failed")

    monkeypatch.setattr(findings, "ask_mpi", fail)
    code, _, errors = _run(capsys, "doctor")
    assert code == 1
    assert errors == "hvd-p3 doctor: MPI_Init_thread failed\n"


def test_doctor_where_nothing_was_built(monkeypatch, capsys, tmp_path):
    (tmp_path / "__init__.py").touch()
    spec = importlib.util.spec_from_file_location("hvd_p3", tmp_path / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    code, _, errors = _run(capsys, "doctor")
    assert code == 1
    assert "was not built" in errors
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, errors = _run(capsys, "doctor")
    assert code == 1
    assert "not installed" in errors


_FAST = """
import sys
from hvd_p3_tools.command_line import main
code = main(sys.argv[1:])
slow = {"tensorflow", "keras", "horovod", "hvd_p3"} & set(sys.modules)
sys.exit(f"imported {slow}" if slow else code)
"""


def test_command_needs_neither_tensorflow_nor_horovod(timeline_file):
    command = [sys.executable, "-c", _FAST, "timeline", str(timeline_file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=_ROOT)
    assert result.returncode == 0, result.stderr


def test_module_is_the_command(timeline_file, tmp_path):
    command = [sys.executable, "-m", "hvd_p3_tools", "timeline", str(tmp_path / "none.json")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=_ROOT)
    assert result.returncode == 1
    assert "cannot read" in result.stderr
    assert "Traceback" not in result.stderr
