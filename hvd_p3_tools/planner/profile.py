"""What is known of a model on a device: the time and the memory of each layer. Kept as JSON.

`docs/planner.md` documents the file.
"""

import dataclasses
import json
import math
import reprlib
from pathlib import Path

from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.model_tables import Convolution

FORMAT = 1  # in `hvd_p3_profile`; another number is another meaning of what is written


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The gradient of a trainable variable.

    Args:
        name: str, unique within its layer.
        bytes: int.
    """

    name: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer with trainable variables, and what follows it without any.

    Args:
        name: str, unique within its profile.
        forward_s: float. Seconds of the forward pass of one batch.
        backward_s: float. Seconds of the backward pass of one batch.
        gradients: tuple of `Gradient`.
        activation_bytes: int. What one example keeps in memory for the backward pass.
        flops: int. Operations of the forward pass of one example; 0 if they are not known.
        convolution: `model_tables.Convolution`, or None if the layer is none.
    """

    name: str
    forward_s: float
    backward_s: float
    gradients: tuple
    activation_bytes: int = 0
    flops: int = 0
    convolution: Convolution | None = None

    @property
    def bytes(self):
        """int, of all gradients of the layer."""
        return sum(gradient.bytes for gradient in self.gradients)


@dataclasses.dataclass(frozen=True)
class AllReduceFit:
    """What was measured of all-reduces: `seconds = latency_s + wire bytes / bytes_per_s`.

    Args:
        ranks: int, that took part.
        latency_s: float. The α of the fit: what an all-reduce without bytes takes.
        bytes_per_s: float. 1/β of the fit, for the `2 (n - 1) / n` of the bytes that each link
            carries.
        relative_error: float. Median over sizes of |fit - measured| / measured.
    """

    ranks: int
    latency_s: float
    bytes_per_s: float
    relative_error: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """A model on a device.

    Args:
        name: str.
        source: str. Where the numbers come from, in one sentence.
        batch: int. Examples of a rank in one step, for which the times are.
        layers: tuple of `Layer`, in the order of the forward pass.
        input_bytes: int, of one example.
        input_s: float. Seconds of a step in which the device waits for its input.
        update_s: float. Seconds of the optimizer's update of all variables.
        layer_overhead_s: float. The part of each pass of each layer that does not depend on the
            batch.
        all_reduce: `AllReduceFit`, or None if none was measured.

    Raises:
        PlannerError: If a value makes no sense; the message names it.
    """

    name: str
    source: str
    batch: int
    layers: tuple
    input_bytes: int = 0
    input_s: float = 0.0
    update_s: float = 0.0
    layer_overhead_s: float = 0.0
    all_reduce: AllReduceFit | None = None

    def __post_init__(self):
        _check(self)

    @property
    def bytes(self):
        """int, of all gradients."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def forward_s(self):
        """float, seconds of the forward pass."""
        return math.fsum(layer.forward_s for layer in self.layers)

    @property
    def backward_s(self):
        """float, seconds of the backward pass."""
        return math.fsum(layer.backward_s for layer in self.layers)

    @property
    def compute_s(self):
        """float, seconds of a step on one rank alone: input, both passes and update."""
        return self.input_s + self.forward_s + self.backward_s + self.update_s

    def at_batch(self, batch):
        """Estimates the profile for another batch.

        The time of a pass is `layer_overhead_s` and a part in proportion to the batch; that of the
        input is in proportion, and that of the update stays.

        Args:
            batch: int, at least 1.

        Returns:
            `Profile`.
        """
        _require(
            _is_integer(batch) and batch >= 1, "batch", "an integer of at least 1 (examples)", batch
        )
        ratio = batch / self.batch

        def scaled(seconds):
            fixed = min(self.layer_overhead_s, seconds)
            return fixed + (seconds - fixed) * ratio

        layers = tuple(
            dataclasses.replace(
                layer, forward_s=scaled(layer.forward_s), backward_s=scaled(layer.backward_s)
            )
            for layer in self.layers
        )
        return dataclasses.replace(self, batch=batch, layers=layers, input_s=self.input_s * ratio)


def to_dict(profile):
    """Returns a profile as it is written to JSON.

    Args:
        profile: `Profile`.

    Returns:
        dict.
    """
    described = {"hvd_p3_profile": FORMAT, **dataclasses.asdict(profile)}
    for layer in described["layers"]:
        if layer["convolution"] is None:
            del layer["convolution"]
    if described["all_reduce"] is None:
        del described["all_reduce"]
    return described


def from_dict(described):
    """Makes a profile from what was written.

    Args:
        described: dict, as `to_dict` returns it.

    Returns:
        `Profile`.

    Raises:
        PlannerError: If a value is missing, unknown, or makes no sense; the message names it.
    """
    if not isinstance(described, dict) or "hvd_p3_profile" not in described:
        raise PlannerError(
            "it is no profile: hvd_p3_profile is missing; `hvd-p3 profile` makes one"
        )
    if described["hvd_p3_profile"] != FORMAT:
        raise PlannerError(
            f"it is in format {described['hvd_p3_profile']!r}, but this version of hvd_p3 reads "
            f"format {FORMAT}; make it anew with `hvd-p3 profile`"
        )
    values = {name: value for name, value in described.items() if name != "hvd_p3_profile"}
    layers = values.get("layers")
    _require(isinstance(layers, (list, tuple)), "layers", "a list", layers)
    values["layers"] = tuple(
        _layer(layer, f"layers[{index}]") for index, layer in enumerate(layers)
    )
    if values.get("all_reduce") is not None:
        values["all_reduce"] = _make(AllReduceFit, values["all_reduce"], "all_reduce")
    return _make(Profile, values, "the profile")


def write(profile, path):
    """Writes a profile as JSON.

    Args:
        profile: `Profile`.
        path: str or path.

    Raises:
        OSError: If it cannot be written.
    """
    Path(path).write_text(json.dumps(to_dict(profile), indent=1) + "\n", encoding="utf-8")


def read(path):
    """Reads a profile.

    Args:
        path: str or path.

    Returns:
        `Profile`.

    Raises:
        PlannerError: If the file cannot be read, or holds something else; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise PlannerError(f"cannot read the profile {path}: {reason}") from None
    try:
        return from_dict(json.loads(text))
    except json.JSONDecodeError as error:
        raise PlannerError(f"the profile {path} is not JSON: {error}") from None
    except PlannerError as error:
        raise PlannerError(f"the profile {path} cannot be used: {error}") from None


def _layer(described, where):
    _require(isinstance(described, dict), where, "an object", described)
    values = dict(described)
    gradients = values.get("gradients")
    _require(isinstance(gradients, (list, tuple)), f"{where}.gradients", "a list", gradients)
    values["gradients"] = tuple(
        _make(Gradient, each, f"{where}.gradients[{index}]") for index, each in enumerate(gradients)
    )
    if values.get("convolution") is not None:
        values["convolution"] = _geometry(values["convolution"], f"{where}.convolution")
    return _make(Layer, values, where)


def _geometry(described, where):
    convolution = _make(Convolution, described, where)
    sizes = {}
    for name, length in (("input", 3), ("kernel", 2), ("strides", 2), ("output", 3)):
        value = getattr(convolution, name)
        fits = (
            isinstance(value, (list, tuple))
            and len(value) == length
            and all(_is_integer(size) and size >= 1 for size in value)
        )
        _require(fits, f"{where}.{name}", f"a list of {length} positive integers", value)
        sizes[name] = tuple(value)
    groups = convolution.groups
    _require(_is_integer(groups) and groups >= 1, f"{where}.groups", "a positive integer", groups)
    return dataclasses.replace(convolution, **sizes)


def _make(kind, values, where):
    """Calls a dataclass with values from a file, of which it must know the names."""
    _require(isinstance(values, dict), where, "an object", values)
    fields = dataclasses.fields(kind)
    unknown = set(values) - {field.name for field in fields}
    if unknown:
        raise PlannerError(f"{where} has an unknown entry {min(unknown)!r}; remove it")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in values:
            raise PlannerError(f"{where} lacks {field.name!r}; add it")
    return kind(**values)


def _check(profile):
    for name in ("name", "source"):
        value = getattr(profile, name)
        _require(isinstance(value, str), name, "a string", value)
    batch = profile.batch
    _require(_is_integer(batch) and batch >= 1, "batch", "an integer of at least 1", batch)
    _check_bytes("input_bytes", profile.input_bytes)
    for name in ("input_s", "update_s", "layer_overhead_s"):
        _check_number(name, getattr(profile, name))
    _require(len(profile.layers) > 0, "layers", "a list of at least one layer", [])
    _check_names("layers", profile.layers)
    for layer in profile.layers:
        for name in ("forward_s", "backward_s"):
            _check_number(f"{name} of layer {layer.name!r}", getattr(layer, name))
        for name in ("activation_bytes", "flops"):
            _check_bytes(f"{name} of layer {layer.name!r}", getattr(layer, name))
        _check_names(f"gradients of layer {layer.name!r}", layer.gradients)
        for gradient in layer.gradients:
            _check_bytes(f"bytes of {layer.name}/{gradient.name}", gradient.bytes)
    if profile.all_reduce is not None:
        _check_fit(profile.all_reduce)


def _check_fit(fit):
    _require(_is_integer(fit.ranks) and fit.ranks >= 2, "all_reduce.ranks", "at least 2", fit.ranks)
    _check_number("all_reduce.latency_s", fit.latency_s)
    _check_number("all_reduce.relative_error", fit.relative_error)
    _check_number("all_reduce.bytes_per_s", fit.bytes_per_s)
    _require(fit.bytes_per_s > 0, "all_reduce.bytes_per_s", "greater than 0", fit.bytes_per_s)


def _check_names(where, named):
    seen = set()
    for each in named:
        _require(isinstance(each.name, str), f"a name in {where}", "a string", each.name)
        _require(each.name not in seen, f"names in {where}", "unique", each.name)
        seen.add(each.name)


def _check_number(name, value):
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    _require(fits, name, "a finite number that is not negative", value)


def _check_bytes(name, value):
    _require(_is_integer(value) and value >= 0, name, "an integer that is not negative", value)


def _is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _require(fits, name, requirement, received):
    if not fits:
        raise PlannerError(f"{name} must be {requirement}. Received: {reprlib.repr(received)}")
