"""Times of a model from its operations and a device's throughput."""

import dataclasses

from hvd_p3_tools.planner import memory, model_tables, units
from hvd_p3_tools.planner.errors import PlannerError

# An update reads a weight and its gradient, and writes the weight; and it reads and writes each
# number of the optimizer's state.
_PASSES_OF_SGD, _PASSES_OF_STATE = 3, 2


def from_flops(profile, device, optimizer="momentum"):
    """Replaces the times of passes and of the update by estimates.

    The forward pass of a layer takes the time of its operations at the device's throughput, and the
    backward pass twice that: gradients of inputs and of variables. Convolutions take the operations
    of GEMM. The update goes through the memory: 3, 5 or 7 times the bytes of the weights for SGD,
    momentum and Adam. What a step waits for its input stays.

    Args:
        profile: `profile.Profile`.
        device: `Device`.
        optimizer: str, one of `memory.OPTIMIZER_COPIES`.

    Returns:
        `profile.Profile`.

    Raises:
        PlannerError: If no layer of the profile has FLOPs.
    """
    if not any(layer.flops for layer in profile.layers):
        raise PlannerError(
            f"the profile {profile.name} has no FLOPs to estimate times from; leave --throughput "
            "out, or make the profile anew with `hvd-p3 profile`"
        )
    copies = memory.optimizer_copies(optimizer)
    passes = _PASSES_OF_SGD + _PASSES_OF_STATE * copies
    return dataclasses.replace(
        profile,
        source=f"{profile.source} Times from FLOPs at "
        f"{units.print_throughput(device.flops_per_s)}.",
        layers=tuple(_layer(layer, profile.batch, device) for layer in profile.layers),
        update_s=passes * profile.bytes / device.memory_bytes_per_s,
        layer_overhead_s=device.layer_overhead_s,
        flops_per_s=device.flops_per_s,
    )


def _layer(layer, batch, device):
    seconds = layer.flops * batch / device.flops_per_s
    backward_per_forward = 1 / model_tables.FORWARD_SHARE - 1
    return dataclasses.replace(
        layer,
        forward_s=device.layer_overhead_s + seconds,
        backward_s=device.layer_overhead_s + backward_per_forward * seconds,
    )
