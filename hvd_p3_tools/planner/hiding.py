"""What hides communication behind computation: servers, bandwidth, ranks.

For parameter servers this is the lemma of Zou et al. (2017): each worker sends S_p bytes of
gradients and receives S_p bytes of weights in a step, so N_w workers move 2 S_p N_w bytes, which
N_ps servers with a bandwidth of B_ps must do within T_C.
"""

import math

from hvd_p3_tools.planner import bounds
from hvd_p3_tools.planner.errors import PlannerError

_ROUNDING = 1e-9  # of floats must not cost a server, nor add a rank


def least_servers(size_bytes, workers, server_bandwidth, compute_s):
    """Finds the least N_ps ≥ 2 S_p N_w / (B_ps T_C).

    Example:

    ```python
    # AlexNet of 180 MB on 1 Gbit/s, 4 workers that compute for 2 s: 2 · 180e6 · 4 / (125e6 · 2)
    hiding.least_servers(180e6, 4, 125e6, 2.0)  # 5.76, so 6
    ```

    Args:
        size_bytes: float, S_p.
        workers: int, N_w.
        server_bandwidth: float, B_ps, bytes per second.
        compute_s: float, T_C, of a step.

    Returns:
        int.
    """
    _check(size_bytes, server_bandwidth, compute_s)
    return max(
        1, math.ceil(2 * size_bytes * workers / (server_bandwidth * compute_s) * (1 - _ROUNDING))
    )


def bandwidth_for_all_reduce(size_bytes, ranks, compute_s):
    """Returns the bandwidth of links with which an all-reduce takes as long as computation.

    Args:
        size_bytes: float.
        ranks: int.
        compute_s: float, of a step.

    Returns:
        float, bytes per second: 2 (n - 1) / n · S / T_C.
    """
    _check(size_bytes, 1.0, compute_s)
    return bounds.communication_s(size_bytes, ranks, 1.0) / compute_s


def ranks_for_all_reduce(size_bytes, bandwidth, compute_s):
    """Finds the most ranks whose all-reduce computation can hide.

    2 (n - 1) / n · S / B ≤ T_C holds for all n if 2 S ≤ B T_C, since 2 (n - 1) / n stays below 2;
    else for n ≤ 2 S / (2 S - B T_C).

    Args:
        size_bytes: float, S.
        bandwidth: float, B, bytes per second.
        compute_s: float, T_C, of a step.

    Returns:
        int, or `math.inf`.
    """
    _check(size_bytes, bandwidth, compute_s)
    excess = 2 * size_bytes - bandwidth * compute_s
    if excess <= 0:
        return math.inf
    return max(1, math.floor(2 * size_bytes / excess * (1 + _ROUNDING)))


def _check(size_bytes, bandwidth, compute_s):
    for name, value in (("the bandwidth", bandwidth), ("the time of computation", compute_s)):
        if not 0 < value < math.inf:
            raise PlannerError(f"{name} must be finite and above 0. Received: {value}")
    if not 0 <= size_bytes < math.inf:
        raise PlannerError(f"the bytes must be finite and not negative. Received: {size_bytes}")
