"""Turns the checks of `checks_*.py` modules into tests: one start of the ranks for each module."""

import ast
import json
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent
sys.path.insert(0, str(_FOLDER))

import launch  # noqa: E402

_SKIPPED = "skipped: "  # as in run_checks.py
_PATIENCE_S = 900  # for all checks of a module, on a slow machine
_results = {}


def check_names(module, prefix="check_"):
    """The names of the checks in a module, in order, without importing it."""
    names = []
    for node in ast.parse((_FOLDER / f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names]
    return [name for name in names if name.startswith(prefix)]


@pytest.fixture
def assert_check(tmp_path_factory):
    """A function of (module, ranks, check) that fails the test if the check failed on any rank.

    Starts the ranks with Gloo instead of MPI if `controller` is "--gloo".
    """

    def assert_one(module, ranks, check, controller="--mpi"):
        key = (module, ranks)
        if key not in _results:
            folder = tmp_path_factory.mktemp(f"{Path(module).name}.{ranks}")
            arguments = [_FOLDER / f"{module}.py", folder]
            code, output = launch.run(
                ranks,
                _FOLDER / "run_checks.py",
                arguments,
                timeout=_PATIENCE_S,
                controller=controller,
            )
            by_rank = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
            _results[key] = (code, output, by_rank)
        code, output, by_rank = _results[key]
        missing = [rank for rank in map(str, range(ranks)) if check not in by_rank.get(rank, {})]
        for rank, results in sorted(by_rank.items()):
            if results.get(check, "").startswith(_SKIPPED):
                pytest.skip(results[check].removeprefix(_SKIPPED))
            assert not results.get(check), f"on rank {rank}:\n{results[check]}"
        assert not missing, f"did not run on ranks {missing}, exit code {code}; output:\n{output}"
        assert code == 0 or any(any(each.values()) for each in by_rank.values()), output

    return assert_one
