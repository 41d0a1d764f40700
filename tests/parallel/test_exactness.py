"""The exactness table, one test for each row, and whether it catches what it is for.

    pytest tests/parallel -k exact -v

Rows whose name ends in "immediate" train in immediate mode, for the reason in `table.IMMEDIATE`.
"""

import ast
from pathlib import Path

import pytest
from conftest import check_names

_FOLDER = Path(__file__).parent / "exactness"

# module -> (prefix of the names of its checks, ranks)
_MODULES = {
    "rows_models": ("row_", 2),
    "rows_optimizers": ("row_", 2),
    "rows_loops": ("row_", 2),
    "rows_dtypes": ("row_", 2),
    "rows_digits": ("row_", 2),
    "rows_on_four_ranks": ("row_", 4),
    "checks_mutation": ("check_", 2),
}


def _immediate_rows():
    """`table.IMMEDIATE`, without importing TensorFlow."""
    for node in ast.parse((_FOLDER / "table.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "IMMEDIATE":
            return ast.literal_eval(node.value)
    raise AssertionError("table.py has no IMMEDIATE")


_IMMEDIATE = _immediate_rows()


def _cases():
    for module, (prefix, ranks) in _MODULES.items():
        for check in check_names(f"exactness/{module}", prefix):
            mode = ["immediate"] if check in _IMMEDIATE else []
            kind = module.removeprefix("rows_").removeprefix("checks_")
            name = "-".join([kind, str(ranks), check.removeprefix(prefix), *mode])
            yield pytest.param(f"exactness/{module}", ranks, check, id=name)


@pytest.mark.parallel
@pytest.mark.parametrize(("module", "ranks", "check"), list(_cases()))
def test_exactness(assert_check, module, ranks, check):
    assert_check(module, ranks, check)


def test_exactness_has_a_row_for_each_reason_for_immediate_mode():
    rows = {
        name
        for module, (prefix, _) in _MODULES.items()
        for name in check_names(f"exactness/{module}", prefix)
    }
    assert set(_IMMEDIATE) <= rows
    assert sorted(set(_IMMEDIATE.values())) == [
        "LossScaleOptimizer looks at all gradients before any update",
        "global_clipnorm needs all gradients before any update",
        "gradient_accumulation_steps updates all variables at once",
        "is not known to update each variable by itself",
        "momentum was changed from 0.9 to 0.5",
        "the model runs eagerly",
    ]
