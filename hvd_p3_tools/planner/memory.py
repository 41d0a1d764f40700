"""The memory of a device in training, and the largest batch that fits.

Distributed Training Large-Scale Deep Architectures (Zou et al., 2017), on setting the mini-batch
size: what is left for the workspace of convolutions is the device's memory without feature maps and
without weights, of which each has a gradient and a state of the optimizer. A batch fits if that is
enough for the least workspace with which its convolutions can be computed.
"""

import dataclasses
import math

from hvd_p3_tools.planner import convolution, units
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.profile import MOST_EXAMPLES

# State of the optimizer, in copies of the weights.
OPTIMIZER_COPIES = {"sgd": 0, "momentum": 1, "adam": 2}


@dataclasses.dataclass(frozen=True)
class Memory:
    """What a device's memory is used for, in bytes.

    Args:
        weights: float.
        gradients: float.
        reduced: float. hvd_p3 reduces each gradient into one buffer of its own; 0 on one rank.
        optimizer_state: float.
        feature_maps: float, of a batch, with its input, and with the gradient of the largest.
    """

    weights: float
    gradients: float
    reduced: float
    optimizer_state: float
    feature_maps: float

    @property
    def bytes(self):
        """float, all together."""
        return math.fsum(dataclasses.astuple(self))


def account(profile, batch, optimizer="momentum", ranks=2):
    """Adds up what a batch needs, without the workspace of convolutions.

    Args:
        profile: `profile.Profile`.
        batch: int.
        optimizer: str, one of `OPTIMIZER_COPIES`.
        ranks: int.

    Returns:
        `Memory`.
    """
    weights = profile.bytes
    return Memory(
        weights=weights,
        gradients=weights,
        reduced=weights if ranks > 1 else 0,
        optimizer_state=optimizer_copies(optimizer) * weights,
        feature_maps=batch * bytes_of_example(profile),
    )


def optimizer_copies(optimizer):
    """Returns how many copies of the weights the state of an optimizer is, as an int.

    Args:
        optimizer: str, one of `OPTIMIZER_COPIES`.

    Raises:
        PlannerError: If it is another.
    """
    if optimizer not in OPTIMIZER_COPIES:
        raise PlannerError(
            f"the optimizer must be of {', '.join(OPTIMIZER_COPIES)}. Received: {optimizer}"
        )
    return OPTIMIZER_COPIES[optimizer]


def bytes_of_example(profile):
    """Returns the bytes that one example adds to the feature maps, as an int.

    Its input, all that layers keep for the backward pass, and the gradient of the largest of these.
    """
    activations = [layer.activation_bytes for layer in profile.layers]
    return profile.input_bytes + sum(activations) + max(activations)


def needed_bytes(profile, batch, optimizer="momentum", ranks=2):
    """Returns what a batch needs at least, with the least workspace of convolutions, in bytes.

    Args:
        profile: `profile.Profile`.
        batch: int.
        optimizer: str, one of `OPTIMIZER_COPIES`.
        ranks: int.
    """
    workspace = convolution.least_workspace_bytes(profile, batch)
    return account(profile, batch, optimizer, ranks).bytes + workspace


def largest_batch(profile, memory_bytes, optimizer="momentum", ranks=2):
    """Finds the largest batch that fits with the least workspace of convolutions.

    Args:
        profile: `profile.Profile`.
        memory_bytes: float, of the device.
        optimizer: str, one of `OPTIMIZER_COPIES`.
        ranks: int.

    Returns:
        int.

    Raises:
        PlannerError: If not even one example fits, or the profile has no sizes of examples.
    """
    fixed = account(profile, 0, optimizer, ranks).bytes
    example = bytes_of_example(profile)
    if example == 0:
        raise PlannerError(
            f"the profile {profile.name} does not say how many bytes an example takes, so that any "
            "batch would fit; add activation_bytes to its layers"
        )
    if needed_bytes(profile, 1, optimizer, ranks) > memory_bytes:
        raise PlannerError(
            f"{profile.name} does not fit {units.print_size(memory_bytes)}: weights, gradients and "
            f"the state of {optimizer} take {units.print_size(fixed)}, each example "
            f"{units.print_size(example)}, and the workspace of convolutions "
            f"{units.print_size(convolution.least_workspace_bytes(profile, 1))}; use a device with "
            "more memory, or a smaller model"
        )
    # Each term of what is needed grows with the batch, or stays.
    fits, too_large = 1, min(math.floor((memory_bytes - fixed) / example), MOST_EXAMPLES) + 1
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if needed_bytes(profile, middle, optimizer, ranks) <= memory_bytes:
            fits = middle
        else:
            too_large = middle
    return fits
