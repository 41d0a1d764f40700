"""How many GPUs: the lemma on overhead of Zou et al. (2017).

A task takes T_C of computation, which G GPUs share, and an overhead T_O, which they do not. With
R_O = T_O / T_C, G GPUs work with the efficiency α = (1 + R_O) / (1 + G R_O), and are α G times as
fast as one.
"""

import math

from hvd_p3_tools.planner.errors import PlannerError

# Rounding of floats must not cost or add a GPU.
_ROUNDING = 1e-9


def overhead_ratio(overhead_s, compute_s):
    """Returns R_O = T_O / T_C.

    Args:
        overhead_s: float, T_O.
        compute_s: float, T_C, above 0.
    """
    if not compute_s > 0:
        raise PlannerError(f"the time of computation must be above 0. Received: {compute_s}")
    if not 0 <= overhead_s < math.inf:
        raise PlannerError(f"the overhead must not be negative. Received: {overhead_s}")
    return overhead_s / compute_s


def efficiency(gpus, ratio):
    """Returns α = (1 + R_O) / (1 + G R_O).

    Example:

    ```python
    scaling.efficiency(4, 0.1)  # 1.1 / 1.4 = 0.786
    ```

    Args:
        gpus: int, G, at least 1.
        ratio: float, R_O.
    """
    return (1 + ratio) / (1 + gpus * ratio)


def speedup(gpus, ratio):
    """Returns α G, how many times as fast G GPUs are as one.

    Args:
        gpus: int, G, at least 1.
        ratio: float, R_O.
    """
    return efficiency(gpus, ratio) * gpus


def gpus_for_speedup(target, ratio):
    """Finds the least G for a speedup: G = S / (1 + R_O - S R_O), rounded up.

    Args:
        target: float, S, at least 1.
        ratio: float, R_O.

    Returns:
        int.

    Raises:
        PlannerError: If no number of GPUs reaches it: speedups stay below (1 + R_O) / R_O.
    """
    if not 1 <= target < math.inf:
        raise PlannerError(f"a speedup must be at least 1. Received: {target}")
    left = 1 + ratio - target * ratio
    if left <= 0:
        raise PlannerError(
            f"no number of GPUs reaches a speedup of {target:g}: with an overhead of {ratio:.3g} "
            f"of the computation it stays below {(1 + ratio) / ratio:.3g}; reduce the overhead"
        )
    return math.ceil(target / left * (1 - _ROUNDING))


def gpus_for_efficiency(target, ratio):
    """Finds the greatest G that keeps an efficiency: G = (1 + R_O - α) / (α R_O), rounded down.

    Args:
        target: float in (0, 1], α.
        ratio: float, R_O.

    Returns:
        int, or `math.inf` if there is no overhead.
    """
    _check_efficiency(target)
    if ratio == 0:
        return math.inf
    return math.floor((1 + ratio - target) / (target * ratio) * (1 + _ROUNDING))


def ratio_for_efficiency(gpus, target):
    """Finds the greatest R_O with which G GPUs keep an efficiency: (1 - α) / (α G - 1).

    Args:
        gpus: int, G, at least 1.
        target: float in (0, 1], α.

    Returns:
        float, or `math.inf` if any overhead will do, since α is at least 1 / G.
    """
    _check_efficiency(target)
    if target * gpus <= 1:
        return math.inf
    return (1 - target) / (target * gpus - 1)


def _check_efficiency(target):
    if not 0 < target <= 1:
        raise PlannerError(f"an efficiency must be above 0 and at most 1. Received: {target}")
