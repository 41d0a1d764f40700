"""The checks of `checks_*.py` modules: functions that ranks call, found without importing them.

A module of its own, since pytest has several modules named conftest.
"""

import ast
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent
_OWN_START = {"SETTINGS", "before_init"}  # what modules define that need ranks of their own


class Check(NamedTuple):
    """A function of a module that ranks call, and how these ranks are started.

    Args:
        module: str. Path of the module in this folder, without `.py`.
        name: str.
        ranks: int.
        controller: str. "--mpi" or "--gloo".
        starts_alone: bool. Whether ranks are started for its module only.
    """

    module: str
    name: str
    ranks: int
    controller: str
    starts_alone: bool

    @property
    def argument(self):
        """The check as run_checks.py takes it."""
        return f"{_FOLDER / self.module}.py::{self.name}"

    def shares_start_with(self, other):
        """Whether both can run in the same start of ranks."""
        if self.module == other.module:
            return self[2:] == other[2:]
        folder, other_folder = Path(self.module).parent, Path(other.module).parent
        together = not (self.starts_alone or other.starts_alone)
        return together and folder == other_folder and self[2:] == other[2:]


def checks_of(module, ranks, prefix="check_", controller="--mpi"):
    """Returns the `Check`s of a module, in order, without importing it."""
    names = []
    for node in ast.parse((_FOLDER / f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    alone = not _OWN_START.isdisjoint(names)
    return [
        Check(module, name, ranks, controller, alone) for name in names if name.startswith(prefix)
    ]
