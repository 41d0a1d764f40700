"""docs/migrating.md against the installed Horovod, whose Keras API cannot be imported with Keras 3.

The names and arguments of that API are read from its source.
"""

import ast
import inspect
import re
from pathlib import Path

import horovod
import horovod.tensorflow
import pytest

import hvd_p3

_ROOT = Path(__file__).parents[2]
_HOROVOD = Path(horovod.__file__).parent
_MARKDOWN = (_ROOT / "docs" / "migrating.md").read_text()
_STATUSES = ("same", "more", "differs", "no")


def _rows(heading):
    """The table under a heading of docs/migrating.md: name to status."""
    section = _MARKDOWN.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (\S+) \|(.*)\|$", section, re.MULTILINE)
    for name, status, remark in rows:
        assert status in _STATUSES, f"{name}: {status}"
        assert remark.strip() or status in ("same", "more"), f"{name} needs a remark"
    names = [name for name, _, _ in rows]
    assert len(set(names)) == len(names), "a name has two rows"
    return {name: status for name, status, _ in rows}


def _definitions(body):
    """The functions and classes of a module's source, also those in `if` and `try`, by name."""
    found = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_":
            found[node.name] = node
        elif isinstance(node, (ast.If, ast.Try)):
            found |= _definitions(node.body) | _definitions(node.orelse)
    return found


def _source(*path):
    return ast.parse(_HOROVOD.joinpath(*path).read_text())


def _imported(tree):
    """What a module of Horovod imports from others and so offers: name to module."""
    return {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("horovod.tensorflow")
        for alias in node.names
        if alias.name[0] != "_"
    }


def _parameters_in_source(node):
    """The names of a function's parameters, or of a class's `__init__`, without * and **."""
    if isinstance(node, ast.ClassDef):
        (node,) = [each for each in node.body if getattr(each, "name", "") == "__init__"]
        return [argument.arg for argument in node.args.args[1:]]
    return [argument.arg for argument in node.args.args]


def _parameters(function):
    """The parameters that can be given by position, and all others that can be given by name."""
    parameters = inspect.signature(function).parameters.values()
    positional = [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
    return positional, [each.name for each in parameters if each.kind == each.KEYWORD_ONLY]


_KERAS_SOURCE = _source("tensorflow", "keras", "__init__.py")
_CALLBACKS_SOURCE = _source("tensorflow", "keras", "callbacks.py")
_ELASTIC_SOURCE = _source("tensorflow", "keras", "elastic.py")
_TENSORFLOW_SOURCE = _source("tensorflow", "__init__.py")


def _names_of_keras():
    return {*_imported(_KERAS_SOURCE), *_definitions(_KERAS_SOURCE.body)}


def _names_of_elastic():
    (names,) = [
        ast.literal_eval(node.value)
        for node in _ELASTIC_SOURCE.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    return set(names)


def _names_of_tensorflow():
    imported = {
        alias.name
        for node in _TENSORFLOW_SOURCE.body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("horovod")
        for alias in node.names
        if alias.name[0] != "_"
    }
    return (imported | set(_definitions(_TENSORFLOW_SOURCE.body))) - _names_of_keras()


_OPTIMIZER = _definitions(_KERAS_SOURCE.body)["DistributedOptimizer"]
_TABLES = {
    "horovod.tensorflow.keras": (_names_of_keras(), hvd_p3),
    "horovod.tensorflow.keras.callbacks": (
        set(_definitions(_CALLBACKS_SOURCE.body)),
        hvd_p3.callbacks,
    ),
    "horovod.tensorflow.keras.elastic": (_names_of_elastic(), hvd_p3.elastic),
    "horovod.tensorflow": (_names_of_tensorflow(), hvd_p3),
}


@pytest.mark.parametrize("heading", _TABLES)
def test_table_has_the_names_of_horovod(heading):
    names, _ = _TABLES[heading]
    assert len(names) >= 5, "Horovod's source is not what this test can read"
    assert set(_rows(heading)) == names


def test_table_has_the_arguments_of_distributed_optimizer():
    assert set(_rows("Arguments of DistributedOptimizer")) == set(_parameters_in_source(_OPTIMIZER))


_NAMES = [
    pytest.param(heading, name, id=f"{heading}.{name}")
    for heading, (names, _) in _TABLES.items()
    for name in sorted(names)
]


@pytest.mark.parametrize(("heading", "name"), _NAMES)
def test_name_exists_unless_the_table_says_no(heading, name):
    _, ours = _TABLES[heading]
    exists = hasattr(ours, name)
    assert exists == (_rows(heading)[name] != "no")
    assert not exists or name in ours.__all__


def _horovods_parameters(heading, name):
    """The parameters of something in Horovod, or `None` if it cannot be called."""
    trees = {
        "horovod.tensorflow.keras": _KERAS_SOURCE,
        "horovod.tensorflow.keras.callbacks": _CALLBACKS_SOURCE,
        "horovod.tensorflow.keras.elastic": _ELASTIC_SOURCE,
    }
    definitions = _definitions(trees[heading].body) if heading in trees else {}
    if name in definitions:
        return _parameters_in_source(definitions[name])
    original = getattr(horovod.tensorflow, name, None) or getattr(
        horovod.tensorflow.elastic, name, None
    )
    if name == "init":  # hides the parameters of what it calls
        original = horovod.tensorflow.mpi_ops._basics.init
    return _parameters(original)[0] if callable(original) else None


@pytest.mark.parametrize(("heading", "name"), _NAMES)
def test_takes_horovods_arguments_in_horovods_order(heading, name):
    _, ours = _TABLES[heading]
    if _rows(heading)[name] == "no":
        pytest.skip("not in hvd_p3")
    expected = _horovods_parameters(heading, name)
    if expected is None or name == "Compression":  # a namespace
        pytest.skip("not a function")
    positional, _ = _parameters(getattr(ours, name))
    assert positional[: len(expected)] == expected


# Functions of horovod.tensorflow that horovod.tensorflow.keras has with another order.
@pytest.mark.parametrize("name", ["allgather", "allreduce", "broadcast", "reducescatter"])
def test_takes_arguments_of_horovod_tensorflow_by_keyword(name):
    expected, _ = _parameters(getattr(horovod.tensorflow, name))
    positional, by_keyword = _parameters(getattr(hvd_p3, name))
    assert positional[0] == "value"
    assert set(expected) - {"tensor"} <= {*positional, *by_keyword}


def test_partial_optimizer_takes_horovods_arguments_in_horovods_order():
    expected = _parameters_in_source(
        _definitions(_source("keras", "__init__.py").body)["PartialDistributedOptimizer"]
    )
    positional, _ = _parameters(hvd_p3.PartialDistributedOptimizer)
    assert positional == expected


@pytest.mark.parametrize("name", ["none", "fp16"])
def test_compression_has_horovods_members(name):
    assert hasattr(horovod.tensorflow.Compression, name)
    assert hasattr(hvd_p3.Compression, name)


def test_diff_shows_the_example():
    """What remains without the lines that go is in the example, in this order."""
    (diff,) = re.findall(r"```diff\n(.*?)```", _MARKDOWN, re.DOTALL)
    example = (_ROOT / "examples" / "keras_digits.py").read_text().splitlines()
    lines = [line for line in diff.splitlines() if line.strip() and line.strip() != "..."]
    shown = [line[1:] for line in lines if line[0] != "-"]
    positions = iter(example)
    for line in shown:
        assert line in positions, f"not in the example, or not in this order: {line!r}"
    changed = [line for line in lines if line[0] in "+-"]
    assert "-import horovod.tensorflow.keras as hvd" in changed
    assert len(changed) == 5
