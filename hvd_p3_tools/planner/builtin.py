"""Profiles of well-known models: sizes exact, times from operations and a device's throughput."""

import difflib
from pathlib import Path

from hvd_p3_tools.planner import model_tables, profile, units
from hvd_p3_tools.planner.device import Device
from hvd_p3_tools.planner.errors import PlannerError

ELEMENT_BYTES = 4  # float32
# Of the updates of SGD with momentum: weight, gradient and velocity are read, two of them written.
_PASSES_OF_AN_UPDATE = 5


def names():
    """Lists the built-in profiles.

    Returns:
        Sorted list of str.
    """
    return model_tables.names()


def load(name, batch=32, device=None):
    """Makes the profile of a well-known model.

    The forward pass of a layer takes the time of its operations at the device's throughput, and the
    backward pass twice that: gradients of inputs and of variables. The update of SGD with momentum
    goes through the memory.

    Example:

    ```python
    vgg19 = builtin.load("vgg19", batch=32, device=Device(flops_per_s=15e12))
    vgg19.bytes  # 574668960
    ```

    Args:
        name: str, one of `names()`.
        batch: int. Examples of a rank in one step.
        device: `Device`; default: `Device()`.

    Returns:
        `profile.Profile`.

    Raises:
        PlannerError: If no model has that name, or the batch is below 1.
    """
    device = Device() if device is None else device
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=1, cutoff=0.5)
        suggestion = f" (did you mean {close[0]}?)" if close else ""
        raise PlannerError(
            f"there is no model {name}{suggestion}; the models are {', '.join(names())}, and "
            "`hvd-p3 profile` makes a profile of your own"
        )
    table = model_tables.load(name)
    layers = tuple(_layer(layer, batch, device) for layer in table.layers)
    return profile.Profile(
        name=name,
        source=f"{table.source} Times from operations at "
        f"{units.print_throughput(device.flops_per_s)}, for {table.example}.",
        batch=batch,
        layers=layers,
        input_bytes=ELEMENT_BYTES * table.inputs,
        update_s=_PASSES_OF_AN_UPDATE * table.bytes / device.memory_bytes_per_s,
        layer_overhead_s=device.layer_overhead_s,
    )


def find(name_or_path, batch=None, device=None):
    """Finds what the command line names: a file, or a built-in profile.

    Args:
        name_or_path: str. A path, if it ends with `.json` or exists; else the name of a model.
        batch: int; default: that of the file, or 32.
        device: `Device`, for models without a file; default: `Device()`.

    Returns:
        `profile.Profile`.

    Raises:
        PlannerError: If there is none, or the file cannot be used.
    """
    if str(name_or_path).endswith(".json") or Path(name_or_path).is_file():
        found = profile.read(name_or_path)
        return found if batch is None else found.at_batch(batch)
    return load(str(name_or_path), 32 if batch is None else batch, device)


def _layer(layer, batch, device):
    seconds = layer.flops * batch / device.flops_per_s
    backward_per_forward = 1 / model_tables.FORWARD_SHARE - 1
    return profile.Layer(
        name=layer.name,
        forward_s=device.layer_overhead_s + seconds,
        backward_s=device.layer_overhead_s + backward_per_forward * seconds,
        gradients=tuple(profile.Gradient(each.name, each.bytes) for each in layer.variables),
        activation_bytes=ELEMENT_BYTES * layer.activations,
        flops=layer.flops,
        convolution=layer.convolution,
    )
