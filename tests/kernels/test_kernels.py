"""The kernels of the ops, on a device that is simulated. One program runs all checks."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from hvd_p3 import _build_info

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = Path(__file__).with_name("kernel_checks.py")
_CHECKS = [
    node.name
    for node in ast.parse(_PROGRAM.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]


@pytest.fixture(scope="module")
def library():
    """The ops with a simulated device, from the folder in which hvd_p3 itself was built."""
    named = os.environ.get("HVD_P3_SIMULATED_OPS")
    if named:
        return named
    tag = f"{sys.implementation.cache_tag}-tensorflow-{tf.__version__}"
    folder = _ROOT / "build" / (tag + ("-cuda" if _build_info.CUDA_VERSION else ""))
    for arguments in (
        ["-S", _ROOT, "-B", folder],
        ["--build", folder, "--target", "simulated_ops", "--parallel", "2"],
    ):
        made = subprocess.run(["cmake", *arguments], capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
    return folder / "libsimulated_ops.so"


@pytest.fixture(scope="module")
def results(library, tmp_path_factory):
    output = tmp_path_factory.mktemp("kernels") / "results.json"
    command = [sys.executable, _PROGRAM, library, output]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert output.exists(), ended.stderr
    return json.loads(output.read_text()), ended


@pytest.mark.parametrize("check", _CHECKS)
def test_kernels_on_a_simulated_device(results, check):
    by_check, ended = results
    assert check in by_check, f"the program ended with {ended.returncode}:\n{ended.stderr}"
    assert not by_check[check], by_check[check]
