"""Turns the checks of `checks_*.py` modules into tests; one start of the ranks serves many."""

import json
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent
sys.path.insert(0, str(_FOLDER))

import launch  # noqa: E402
from check import Check  # noqa: E402

_SKIPPED = "skipped: "  # as in run_checks.py
_PATIENCE_S = 900  # for all checks of one start, on a slow machine
_results = {}


def pytest_collection_modifyitems(items):
    for item in items:
        if _check_of(item):
            # Ranks may hang once, and are then started again for the other checks.
            item.add_marker(pytest.mark.timeout(2 * _PATIENCE_S + 60))


def _check_of(item):
    """The `Check` that a test is for, or None."""
    check = getattr(item, "callspec", None) and item.callspec.params.get("check")
    return check if isinstance(check, Check) else None


@pytest.fixture
def assert_check(request, tmp_path_factory):
    """A function of a `Check` that fails the test if the check failed on any rank.

    The first call starts ranks for all checks of this run of pytest that can share them.
    """

    def assert_one(check):
        while check not in _results:
            selected = [_check_of(item) for item in request.session.items]
            together = [
                each
                for each in selected
                if each and each not in _results and each.shares_start_with(check)
            ]
            _results.update(_run(together, tmp_path_factory.mktemp(Path(check.module).name)))
        code, output, by_rank = _results[check]
        key = check.argument
        ranks = map(str, range(check.ranks))
        missing = [rank for rank in ranks if key not in by_rank.get(rank, {})]
        for rank, results in sorted(by_rank.items()):
            if results.get(key, "").startswith(_SKIPPED):
                pytest.skip(results[key].removeprefix(_SKIPPED))
            assert not results.get(key), f"on rank {rank}:\n{results[key]}"
        assert not missing, f"did not run on ranks {missing}, exit code {code}; output:\n{output}"
        assert code == 0 or any(any(each.values()) for each in by_rank.values()), output

    return assert_one


def _run(checks, folder):
    """Starts ranks for checks. Returns a dict of those whose outcome is known then.

    Ranks stop at a check that fails, and may end or hang at one: those behind it are not in the
    dict, and need another start.
    """
    first = checks[0]
    try:
        code, output = launch.run(
            first.ranks,
            _FOLDER / "run_checks.py",
            [folder, *(each.argument for each in checks)],
            timeout=_PATIENCE_S,
            controller=first.controller,
        )
    except AssertionError as hang:
        code, output = None, str(hang)
    by_rank = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    ran = [each for each in checks if any(each.argument in of for of in by_rank.values())]
    if not ran:
        known = checks  # the ranks did not even start
    elif any(of[each.argument] for each in ran for of in by_rank.values() if each.argument in of):
        known = ran
    else:
        known = checks[: len(ran) + 1]  # the next one has ended the ranks
    return dict.fromkeys(known, (code, output, by_rank))
