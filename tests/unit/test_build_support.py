"""What the build says about CUDA and NCCL: where it finds them, and one sentence where not."""

import os
import subprocess
from pathlib import Path

import pytest

from build_support import cuda


@pytest.fixture(autouse=True)
def _only_pip(monkeypatch, tmp_path):
    """Neither the machine's CUDA and NCCL nor the tests' environment matter; pip's folder does."""
    for name in ("CUDACXX", "CUDA_HOME", "NCCL_HOME", "HVD_P3_WITH_CUDA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuda.sysconfig, "get_path", lambda name: str(tmp_path / "packages"))


def _toolkit(folder, release="13.0", libraries="lib64"):
    """Makes a folder that looks like a CUDA toolkit, whose nvcc knows lib64/. Returns it."""
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *dryrun*) echo "#\\$ TOP={folder}/bin/.." >&2; '
        f'echo "#\\$ INCLUDES=\\"-I{folder}/include\\" " >&2; '
        f'echo "#\\$ LIBRARIES=\\"-L{folder}/lib64\\" " >&2;; '
        f'*) echo "Cuda compilation tools, release {release}, V{release}.88";; esac\n'
    )
    nvcc.chmod(0o755)
    if libraries:
        _runtime(folder, libraries)
    return folder


def _runtime(folder, libraries="lib"):
    for name in ("include/cuda_runtime.h", f"{libraries}/libcudart_static.a"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def _nccl(folder, version=(2, 27)):
    for name in ("include/nccl.h", "lib/libnccl.so.2"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    lines = zip(("MAJOR", "MINOR"), version, strict=True)
    text = "\n".join(f"#define NCCL_{part} {number}" for part, number in lines)
    (folder / "include" / "nccl.h").write_text(text)
    return folder


def _sentence(call):
    with pytest.raises(SystemExit) as ended:
        call()
    message = str(ended.value)
    assert message.startswith("hvd_p3: ")
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("value", "wanted"), [("", False), ("0", False), ("1", True)])
def test_cuda_is_built_only_if_asked_for(monkeypatch, value, wanted):
    monkeypatch.setenv("HVD_P3_WITH_CUDA", value)
    assert cuda.is_wanted() is wanted


@pytest.mark.parametrize("value", ["yes", "true", "2", " 1"])
def test_other_values_are_an_error(monkeypatch, value):
    monkeypatch.setenv("HVD_P3_WITH_CUDA", value)
    assert f"'{value}'" in _sentence(cuda.is_wanted)


def test_cuda_home_and_nccl_home(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(_toolkit(tmp_path / "cuda")))
    monkeypatch.setenv("NCCL_HOME", str(_nccl(tmp_path / "nccl")))
    found = cuda.find()
    assert found.compiler == tmp_path / "cuda" / "bin" / "nvcc"
    assert found.nccl_include == tmp_path / "nccl" / "include"
    assert found.nccl_library == tmp_path / "nccl" / "lib" / "libnccl.so.2"
    assert found.include == tmp_path / "cuda" / "include"
    assert found.runtime == tmp_path / "cuda" / "lib64" / "libcudart_static.a"
    assert found.compiler_flags == ()


def test_packages_of_pip(monkeypatch, tmp_path):
    nvidia = tmp_path / "packages" / "nvidia"
    _toolkit(nvidia / "cu13", libraries="lib")
    _nccl(nvidia / "nccl")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(cuda, "USUAL_TOOLKIT", Path("/nowhere"))
    found = cuda.find()
    assert found.compiler == nvidia / "cu13" / "bin" / "nvcc"
    assert found.compiler_flags == (f"-L{nvidia}/cu13/lib",)
    assert found.nccl_library == nvidia / "nccl" / "lib" / "libnccl.so.2"


def test_runtime_of_pip_beside_another_nvcc(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(_toolkit(tmp_path / "cuda", "12.4", libraries=None)))
    _nccl(tmp_path / "packages" / "nvidia" / "nccl")
    message = _sentence(cuda.find)
    assert "cuda_runtime.h and libcudart_static.a" in message
    assert "`pip install nvidia-cuda-runtime-cu12`" in message
    runtime = tmp_path / "packages" / "nvidia" / "cuda_runtime"
    _runtime(runtime)
    found = cuda.find()
    assert (found.include, found.runtime.parent) == (runtime / "include", runtime / "lib")
    assert f"-DCMAKE_CUDA_FLAGS=-I{runtime}/include -L{runtime}/lib" in found.cmake_arguments()


def test_nvcc_that_is_missing_or_old(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    message = _sentence(cuda.find)
    assert f"looked for {tmp_path}/bin/nvcc" in message
    assert "set CUDA_HOME" in message
    _toolkit(tmp_path, "10.2")
    assert "CUDA 10.2, but hvd_p3 needs 11.4" in _sentence(cuda.find)
    monkeypatch.setenv("CUDACXX", "/bin/false")
    assert "/bin/false does not run" in _sentence(cuda.find)


def test_nccl_that_is_missing_or_old(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(_toolkit(tmp_path / "cuda")))
    monkeypatch.setenv("NCCL_HOME", str(tmp_path / "nccl"))
    message = _sentence(cuda.find)
    assert f"looked in {tmp_path}/nccl" in message
    assert "`pip install nvidia-nccl-cu13`" in message
    _nccl(tmp_path / "nccl", (2, 8))
    assert "NCCL 2.8, but hvd_p3 needs 2.14" in _sentence(cuda.find)


def test_nvcc_on_path_may_be_a_script(monkeypatch, tmp_path):
    _toolkit(tmp_path / "cuda")
    script = tmp_path / "bin" / "nvcc"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {tmp_path}/cuda/bin/nvcc "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    subprocess.run(["nvcc", "--version"], check=True, capture_output=True)
    assert cuda.folders_of(script)[0] == (tmp_path / "cuda").resolve()
