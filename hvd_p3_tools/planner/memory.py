"""The memory of a device in training, and the largest batch that fits.

Distributed Training Large-Scale Deep Architectures (Zou et al., 2017), on setting the mini-batch
size: what is left for the workspace of convolutions is the device's memory without feature maps and
without weights, of which each has a gradient and a state of the optimizer.
"""

import dataclasses
import math

from hvd_p3_tools.planner import units
from hvd_p3_tools.planner.errors import PlannerError

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
    if optimizer not in OPTIMIZER_COPIES:
        raise PlannerError(
            f"the optimizer must be of {', '.join(OPTIMIZER_COPIES)}. Received: {optimizer}"
        )
    weights = profile.bytes
    return Memory(
        weights=weights,
        gradients=weights,
        reduced=weights if ranks > 1 else 0,
        optimizer_state=OPTIMIZER_COPIES[optimizer] * weights,
        feature_maps=batch * bytes_of_example(profile),
    )


def bytes_of_example(profile):
    """Returns the bytes that one example adds to the feature maps, as an int.

    Its input, all that layers keep for the backward pass, and the gradient of the largest of these.
    """
    activations = [layer.activation_bytes for layer in profile.layers]
    return profile.input_bytes + sum(activations) + max(activations)


def largest_batch(profile, memory_bytes, optimizer="momentum", ranks=2):
    """Finds the largest batch whose feature maps fit beside weights, gradients and state.

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
    batch = math.floor((memory_bytes - fixed) / example)
    if batch < 1:
        raise PlannerError(
            f"{profile.name} does not fit {units.print_size(memory_bytes)}: weights, gradients and "
            f"the state of {optimizer} take {units.print_size(fixed)}, and each example "
            f"{units.print_size(example)}; use a device with more memory, or a smaller model"
        )
    return batch
