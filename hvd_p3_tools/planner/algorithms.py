"""Chooses the algorithm of each convolution: the integer program of Zou et al. (2017).

Minimise Σₖ Σₗ xₖₗ Tₖₗ over the convolutions k and their algorithms l, with Σₖ Σₗ xₖₗ Mₖₗ within the
memory that is left, Σₗ xₖₗ = 1 for each k, and xₖₗ of 0 or 1. T is time, M is workspace.
"""

import dataclasses

import numpy as np
import scipy.optimize

from hvd_p3_tools.planner import convolution, units
from hvd_p3_tools.planner.errors import PlannerError


@dataclasses.dataclass(frozen=True)
class Algorithms:
    """The choice for all convolutions of a model.

    Args:
        chosen: dict of the name of a layer to `convolution.Choice`.
        gemm_s: float, seconds of all convolutions of a step with GEMM.
    """

    chosen: dict
    gemm_s: float

    @property
    def seconds(self):
        """float, of all convolutions of a step, forward and backward."""
        return sum(choice.seconds for choice in self.chosen.values())

    @property
    def workspace_bytes(self):
        """float, of all convolutions together."""
        return sum(choice.workspace_bytes for choice in self.chosen.values())

    @property
    def time_ratio(self):
        """float in (0, 1], time of the choice over that of GEMM; 1 without convolutions."""
        return self.seconds / self.gemm_s if self.gemm_s > 0 else 1.0


def choose(profile, batch, device, workspace_bytes):
    """Chooses the algorithms that together take the least time within the memory.

    Args:
        profile: `profile.Profile`.
        batch: int.
        device: `Device`.
        workspace_bytes: float, for the workspaces of all layers together.

    Returns:
        `Algorithms`.

    Raises:
        PlannerError: If no choice fits.
    """
    options = {
        layer.name: convolution.choices(layer.convolution, batch, device)
        for layer in profile.layers
        if layer.convolution is not None
    }
    gemm_s = sum(choices[0].seconds for choices in options.values())
    if not options:
        return Algorithms({}, 0.0)
    picked = solve(list(options.values()), workspace_bytes)
    return Algorithms(dict(zip(options, picked, strict=True)), gemm_s)


def solve(options, workspace_bytes):
    """Solves the integer program.

    Args:
        options: list of list of `convolution.Choice`, one list for each convolution.
        workspace_bytes: float.

    Returns:
        List of `convolution.Choice`, one of each list.

    Raises:
        PlannerError: If no choice fits.
    """
    flat = [choice for choices in options for choice in choices]
    least = sum(min(choice.workspace_bytes for choice in choices) for choices in options)
    if least > workspace_bytes:
        raise PlannerError(
            f"the workspace of convolutions needs {units.print_size(least)} at least, and "
            f"{units.print_size(max(0, workspace_bytes))} is left; use a smaller batch"
        )
    one_of_each = np.zeros((len(options), len(flat)))
    column = 0
    for row, choices in enumerate(options):
        one_of_each[row, column : column + len(choices)] = 1
        column += len(choices)
    seconds = np.array([choice.seconds for choice in flat])
    memory = np.array([choice.workspace_bytes for choice in flat])
    # In units of the whole, since the solver's tolerances are absolute.
    scale = max(workspace_bytes, 1.0)
    solution = scipy.optimize.milp(
        seconds / seconds.max(),
        integrality=np.ones(len(flat)),
        bounds=scipy.optimize.Bounds(0, 1),
        constraints=[
            scipy.optimize.LinearConstraint(one_of_each, 1, 1),
            scipy.optimize.LinearConstraint(memory[np.newaxis] / scale, -np.inf, 1.0),
        ],
    )
    if solution.x is None:
        raise PlannerError(f"the solver found no choice of algorithms: {solution.message}")
    return [choice for choice, taken in zip(flat, solution.x, strict=True) if taken > 0.5]
