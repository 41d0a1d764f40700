"""Tables of the layers of well-known models: sizes of variables and work of the forward pass.

The tables are in `tables/*.json`, written by `python -m benchmarks.workloads.describe_models` in
the repository. Reading them needs no TensorFlow.
"""

import dataclasses
import json
import math
from pathlib import Path

# A backward pass has about twice the operations of a forward pass: the gradients of the inputs and
# of the variables.
FORWARD_SHARE = 1 / 3
FOLDER = Path(__file__).parent / "tables"
_BYTES_OF_AN_ELEMENT = 4  # float32


@dataclasses.dataclass(frozen=True)
class Variable:
    """A trainable variable, and so a gradient of the same shape.

    Args:
        name: str, unique within its layer.
        shape: tuple of int.
    """

    name: str
    shape: tuple

    @property
    def elements(self):
        """int, the number of numbers in the gradient."""
        return math.prod(self.shape)

    @property
    def bytes(self):
        """int, the size of the gradient in float32."""
        return self.elements * _BYTES_OF_AN_ELEMENT


@dataclasses.dataclass(frozen=True)
class Convolution:
    """The geometry of a convolution over images. All sizes are of one example.

    Args:
        input: tuple of int, (height, width, channels).
        kernel: tuple of int, (height, width).
        strides: tuple of int, (height, width).
        output: tuple of int, (height, width, channels).
        groups: int. Each reads `1 / groups` of the channels, and makes as many of the outputs.
    """

    input: tuple
    kernel: tuple
    strides: tuple
    output: tuple
    groups: int = 1


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer with trainable variables.

    Args:
        name: str, unique within its table.
        flops: int. Floating-point operations of the forward pass of one example; a multiplication
            and an addition are two.
        variables: tuple of `Variable`.
        activations: int. Numbers that one example leaves in memory for the backward pass: the
            outputs of the layer, and of the layers without variables that follow.
        convolution: `Convolution`, or None if the layer is none.
    """

    name: str
    flops: int
    variables: tuple
    activations: int = 0
    convolution: Convolution | None = None

    @property
    def bytes(self):
        """int, the size of the gradients of the layer in float32."""
        return sum(variable.bytes for variable in self.variables)


@dataclasses.dataclass(frozen=True)
class ModelTable:
    """The layers of a model, in the order in which the forward pass uses them.

    Args:
        name: str.
        source: str. Where the table comes from, in one sentence.
        layers: tuple of `Layer`.
        example: str. What one example is.
        inputs: int. Numbers of an example.
    """

    name: str
    source: str
    layers: tuple
    example: str = ""
    inputs: int = 0

    @property
    def bytes(self):
        """int, the size of the gradients of the model in float32."""
        return sum(layer.bytes for layer in self.layers)


def names():
    """Lists the models that have a table.

    Returns:
        Sorted list of str.
    """
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name):
    """Reads the table of a model.

    Example:

    ```python
    table = model_tables.load("vgg19")
    heaviest = max(table.layers, key=lambda layer: layer.bytes)  # fc1
    ```

    Args:
        name: str, one of `names()`.

    Returns:
        `ModelTable`.

    Raises:
        ValueError: if no model has that name.
    """
    known = names()
    if name not in known:
        raise ValueError(f"name must be one of {', '.join(known)}. Received: {name!r}")
    description = json.loads((FOLDER / f"{name}.json").read_text())
    layers = tuple(
        Layer(
            layer["name"],
            layer["flops"],
            tuple(Variable(each["name"], tuple(each["shape"])) for each in layer["variables"]),
            layer["activations"],
            _convolution(layer),
        )
        for layer in description["layers"]
    )
    return ModelTable(
        description["name"],
        description["source"],
        layers,
        description["example"],
        description["inputs"],
    )


def _convolution(layer):
    geometry = layer.get("convolution")
    if geometry is None:
        return None
    sizes = {name: tuple(geometry[name]) for name in ("input", "kernel", "strides", "output")}
    return Convolution(**sizes, groups=geometry["groups"])


def scaled(table, factor):
    """Shrinks the variables of a table, for machines or networks too slow for the whole model.

    The layers, the number of their variables and their operations stay as they are.

    Example:

    ```python
    table = model_tables.scaled(models.load("vgg19"), 16)  # 36 MB of gradients instead of 575 MB
    ```

    Args:
        table: `ModelTable`.
        factor: int or float above 0. A variable of `n` elements gets `n / factor`, rounded, but at
            least one.

    Returns:
        `ModelTable` whose variables have one dimension.

    Raises:
        ValueError: if `factor` is not a positive finite number.
    """
    if not 0 < factor < math.inf:
        raise ValueError(f"factor must be a positive finite number. Received: {factor!r}")

    def shrink(variable):
        return Variable(variable.name, (max(1, round(variable.elements / factor)),))

    layers = tuple(
        dataclasses.replace(layer, variables=tuple(map(shrink, layer.variables)))
        for layer in table.layers
    )
    source = f"{table.source} Variables scaled to 1/{factor:g} of their size."
    return dataclasses.replace(table, source=source, layers=layers)


def compute_times(table, forward_s, backward_s):
    """Divides the time of a step among the layers, in proportion to their operations.

    A layer without operations, such as an embedding, takes no time.

    Example:

    ```python
    times = model_tables.compute_times(table, forward_s=0.1, backward_s=0.2)
    for layer, (forward_s, backward_s) in zip(table.layers, times):
        ...
    ```

    Args:
        table: `ModelTable`.
        forward_s: float. Seconds of the forward pass of all layers.
        backward_s: float. Seconds of the backward pass of all layers.

    Returns:
        List of `(forward_s, backward_s)`, one for each layer, in the order of the table.

    Raises:
        ValueError: if a time is negative or not finite, or if the table has no operations.
    """
    for name, seconds in (("forward_s", forward_s), ("backward_s", backward_s)):
        if not 0 <= seconds < math.inf:
            raise ValueError(f"{name} must be finite and not negative. Received: {seconds!r}")
    total = sum(layer.flops for layer in table.layers)
    if total == 0:
        raise ValueError(f"table must have operations to divide the time by. Received: {table!r}")
    shares = [layer.flops / total for layer in table.layers]
    return [(forward_s * share, backward_s * share) for share in shares]


def step_times(table, step_s):
    """Divides the time of a step among the passes, by `FORWARD_SHARE`, and among the layers.

    Args:
        table: `ModelTable`.
        step_s: float. Seconds of forward and backward pass of all layers together.

    Returns:
        As `compute_times`.

    Raises:
        ValueError: As `compute_times`.
    """
    return compute_times(table, FORWARD_SHARE * step_s, (1 - FORWARD_SHARE) * step_s)
