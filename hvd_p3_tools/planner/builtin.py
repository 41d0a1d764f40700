"""Profiles of well-known models: sizes exact, times from operations and a device's throughput."""

import difflib
from pathlib import Path

from hvd_p3_tools.planner import estimate, model_tables, profile, profile_file
from hvd_p3_tools.planner.device import Device
from hvd_p3_tools.planner.errors import PlannerError

ELEMENT_BYTES = 4  # float32


def names():
    """Lists the built-in profiles.

    Returns:
        Sorted list of str.
    """
    return model_tables.names()


def load(name, batch=32, device=None, optimizer="momentum"):
    """Makes the profile of a well-known model.

    Times are those of `estimate.from_flops`.

    Example:

    ```python
    vgg19 = builtin.load("vgg19", batch=32, device=Device(flops_per_s=15e12))
    vgg19.bytes  # 574668960
    ```

    Args:
        name: str, one of `names()`.
        batch: int. Examples of a rank in one step.
        device: `Device`; default: `Device()`.
        optimizer: str, one of `memory.OPTIMIZER_COPIES`.

    Returns:
        `profile.Profile`.

    Raises:
        PlannerError: If no model has that name, or the batch is below 1.
    """
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=1, cutoff=0.5)
        suggestion = f" (did you mean {close[0]}?)" if close else ""
        raise PlannerError(
            f"there is no model {name}{suggestion}; the models are {', '.join(names())}, and "
            "`hvd-p3 profile` makes a profile of your own"
        )
    table = model_tables.load(name)
    without_times = profile.Profile(
        name=name,
        source=f"{table.source} FLOPs are for {table.example}.",
        batch=batch,
        layers=tuple(_layer(layer) for layer in table.layers),
        input_bytes=ELEMENT_BYTES * table.inputs,
    )
    return estimate.from_flops(without_times, Device() if device is None else device, optimizer)


def is_file(name_or_path):
    """Returns whether the command line names a file: it ends with `.json`, or exists."""
    return str(name_or_path).endswith(".json") or Path(name_or_path).is_file()


def find(name_or_path, batch=None):
    """Finds what the command line names: a file, or a built-in profile.

    Args:
        name_or_path: str. A path, if it ends with `.json` or exists; else the name of a model.
        batch: int; default: that of the file, or 32.

    Returns:
        `profile.Profile`.

    Raises:
        PlannerError: If there is none, or the file cannot be used.
    """
    if is_file(name_or_path):
        found = profile_file.read(name_or_path)
        return found if batch is None else found.at_batch(batch)
    return load(str(name_or_path), 32 if batch is None else batch)


def _layer(layer):
    return profile.Layer(
        name=layer.name,
        forward_s=0.0,
        backward_s=0.0,
        gradients=tuple(profile.Gradient(each.name, each.bytes) for each in layer.variables),
        activation_bytes=ELEMENT_BYTES * layer.activations,
        flops=layer.flops,
        convolution=layer.convolution,
    )
