"""The exactness table, one test for each row, and whether it catches what it is for.

    pytest tests/parallel -k exact -v

Rows whose name ends in "immediate" train in immediate mode, for the reason in `table.IMMEDIATE`.
"""

import ast
from pathlib import Path

import pytest
from check import checks_of

_FOLDER = Path(__file__).parent / "exactness"

_TABLES = ("IMMEDIATE", "REWRITTEN", "UNFOLDED")

# module -> (prefix of the names of its checks, ranks)
_MODULES = {
    "rows_models": ("row_", 2),
    "rows_optimizers": ("row_", 2),
    "rows_loops": ("row_", 2),
    "rows_dtypes": ("row_", 2),
    "rows_digits": ("row_", 2),
    "rows_reduction": ("row_", 2),
    "rows_on_four_ranks": ("row_", 4),
    "checks_mutation": ("check_", 2),
}


def _tables():
    """The rows that `table.py` names in its tables, without importing TensorFlow."""
    tree = ast.parse((_FOLDER / "table.py").read_text())
    values = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id in _TABLES
    }
    return {name: set(ast.literal_eval(value)) for name, value in values.items()}


def _cases():
    immediate = _tables()["IMMEDIATE"]
    for module, (prefix, ranks) in _MODULES.items():
        for check in checks_of(f"exactness/{module}", ranks, prefix):
            mode = ["immediate"] if check.name in immediate else []
            kind = module.removeprefix("rows_").removeprefix("checks_")
            name = "-".join([kind, str(ranks), check.name.removeprefix(prefix), *mode])
            yield pytest.param(check, id=name)


@pytest.mark.parallel
@pytest.mark.parametrize("check", list(_cases()))
def test_exactness(assert_check, check):
    assert_check(check)


@pytest.mark.parametrize("name", _TABLES)
def test_exactness_tables_name_rows_that_exist(name):
    rows = {
        check.name
        for module, (prefix, ranks) in _MODULES.items()
        for check in checks_of(f"exactness/{module}", ranks, prefix)
    }
    assert _tables()[name] <= rows
