"""Chooses the algorithm of each convolution: the integer program of Zou et al. (2017).

Minimise Σₖ Σₗ xₖₗ Tₖₗ over the convolutions k and their algorithms l, with Σₖ Σₗ xₖₗ Mₖₗ within the
memory that is left, Σₗ xₖₗ = 1 for each k, and xₖₗ of 0 or 1. T is time, M is workspace.
"""

import dataclasses
import math

import numpy as np
import scipy.optimize

from hvd_p3_tools.planner import convolution, units
from hvd_p3_tools.planner.errors import PlannerError

_TOLERANCE = 1e-6  # of the solver


@dataclasses.dataclass(frozen=True)
class Algorithms:
    """The choice for all convolutions of a model.

    Args:
        chosen: dict of the name of a layer to `convolution.Choice`.
        gemm: dict of the name of a layer to `convolution.Choice`, of GEMM.
    """

    chosen: dict
    gemm: dict

    @property
    def gemm_s(self):
        """float, seconds of all convolutions of a step with GEMM."""
        return sum(choice.seconds for choice in self.gemm.values())

    @property
    def seconds(self):
        """float, of all convolutions of a step, forward and backward."""
        return sum(choice.seconds for choice in self.chosen.values())

    @property
    def workspace_bytes(self):
        """float, of all convolutions together."""
        return sum(choice.workspace_bytes for choice in self.chosen.values())

    @property
    def most_workspace_bytes(self):
        """float, of the convolution that needs most; 0 without convolutions."""
        return max((choice.workspace_bytes for choice in self.chosen.values()), default=0.0)

    def apply(self, profile):
        """Gives the convolutions of a profile the times of the algorithms.

        Args:
            profile: `profile.Profile`, whose times are estimates with GEMM, for the same batch.

        Returns:
            `profile.Profile`.
        """

        def scaled(seconds, ratio):
            fixed = min(profile.layer_overhead_s, seconds)
            return fixed + (seconds - fixed) * ratio

        layers = []
        for layer in profile.layers:
            choice = self.chosen.get(layer.name)
            if choice is not None:
                ratio = choice.seconds / self.gemm[layer.name].seconds
                layer = dataclasses.replace(
                    layer,
                    forward_s=scaled(layer.forward_s, ratio),
                    backward_s=scaled(layer.backward_s, ratio),
                )
            layers.append(layer)
        return dataclasses.replace(profile, layers=tuple(layers))


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
    options = _options(profile, batch, device)
    if not options:
        return Algorithms({}, {})
    picked = solve(list(options.values()), workspace_bytes)
    return _made(options, picked)


def least(profile, batch, device):
    """Chooses the algorithms with the least workspace.

    Args:
        profile: `profile.Profile`.
        batch: int.
        device: `Device`.

    Returns:
        `Algorithms`.
    """
    options = _options(profile, batch, device)
    return _made(options, [_least(choices) for choices in options.values()])


def _options(profile, batch, device):
    return {
        layer.name: convolution.choices(layer.convolution, batch, device)
        for layer in profile.layers
        if layer.convolution is not None
    }


def _made(options, picked):
    gemm = {name: choices[0] for name, choices in options.items()}
    return Algorithms(dict(zip(options, picked, strict=True)), gemm)


def _least(choices):
    return min(choices, key=lambda choice: choice.workspace_bytes)


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
    smallest = [_least(choices) for choices in options]
    least_bytes = math.fsum(choice.workspace_bytes for choice in smallest)
    if least_bytes > workspace_bytes:
        raise PlannerError(
            f"the workspace of convolutions needs {units.print_size(least_bytes)} at least, and "
            f"{units.print_size(max(0, workspace_bytes))} is left; use a smaller batch"
        )
    one_of_each = np.zeros((len(options), len(flat)))
    column = 0
    for row, choices in enumerate(options):
        one_of_each[row, column : column + len(choices)] = 1
        column += len(choices)
    seconds = np.array([choice.seconds for choice in flat])
    memory = np.array([choice.workspace_bytes for choice in flat])
    # In units of the whole, since the solver's tolerances are absolute; there may be nothing.
    scale = max(workspace_bytes, 1.0)
    solution = scipy.optimize.milp(
        seconds / seconds.max(),
        integrality=np.ones(len(flat)),
        bounds=scipy.optimize.Bounds(0, 1),
        constraints=[
            scipy.optimize.LinearConstraint(one_of_each, 1, 1),
            scipy.optimize.LinearConstraint(
                memory[np.newaxis] / scale, -np.inf, workspace_bytes / scale
            ),
        ],
    )
    if solution.x is None:
        raise PlannerError(f"the solver found no choice of algorithms: {solution.message}")
    picked = [choice for choice, taken in zip(flat, solution.x, strict=True) if taken > 0.5]
    # The solver may go beyond the bound by its tolerance.
    fits = math.fsum(choice.workspace_bytes for choice in picked) <= workspace_bytes
    smaller = workspace_bytes * (1 - _TOLERANCE)
    if fits or least_bytes >= smaller:
        return picked if fits else smallest
    return solve(options, smaller)
