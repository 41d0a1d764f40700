"""Finds the binary that runs scenarios. `make test` and `make sanitize` build it and name it."""

import os
import pathlib
import subprocess

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def scenario_binary():
    named = os.environ.get("HVD_P3_ENGINE_SCENARIO")
    if named:
        return named
    build = _ROOT / "build" / "engine-tests"
    configure = ["cmake", "-S", str(_ROOT), "-B", str(build)]
    options = ["-DHVD_P3_ENGINE_ONLY=ON", "-DHVD_P3_BUILD_TESTS=ON"]
    subprocess.run(configure + options, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(build), "-j2"], check=True, capture_output=True)
    return str(build / "engine_scenario")
