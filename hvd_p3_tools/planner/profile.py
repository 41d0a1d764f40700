"""What is known of a model on a device: the time and the memory of each layer."""

import dataclasses
import math

from hvd_p3_tools.planner.checks import is_integer, is_number, require
from hvd_p3_tools.planner.model_tables import Convolution

# Far beyond what makes sense, and far within what floats add up without overflow.
_MOST_SECONDS = 1e18
_MOST_BYTES = 1 << 60
MOST_EXAMPLES = 10**9  # of a batch


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
        hosts: int, on which these ranks were; None if it is not known. On one host no network was
            measured.
    """

    ranks: int
    latency_s: float
    bytes_per_s: float
    relative_error: float
    hosts: int | None = None


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
        flops_per_s: float. The throughput from which the times of layers were estimated; None if
            they were measured.

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
    flops_per_s: float | None = None

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
        _check_batch(batch)
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


def _check(profile):
    for name in ("name", "source"):
        value = getattr(profile, name)
        require(isinstance(value, str), name, "a string", value)
    _check_batch(profile.batch)
    _check_bytes("input_bytes", profile.input_bytes)
    for name in ("input_s", "update_s", "layer_overhead_s"):
        _check_seconds(name, getattr(profile, name))
    if profile.flops_per_s is not None:
        _check_above_zero("flops_per_s", profile.flops_per_s)
    require(len(profile.layers) > 0, "layers", "a list of at least one layer", [])
    _check_names("layers", profile.layers)
    for layer in profile.layers:
        for name in ("forward_s", "backward_s"):
            _check_seconds(f"{name} of layer {layer.name!r}", getattr(layer, name))
        for name in ("activation_bytes", "flops"):
            _check_bytes(f"{name} of layer {layer.name!r}", getattr(layer, name))
        _check_names(f"gradients of layer {layer.name!r}", layer.gradients)
        for gradient in layer.gradients:
            _check_bytes(f"bytes of {layer.name}/{gradient.name}", gradient.bytes)
    if profile.all_reduce is not None:
        _check_fit(profile.all_reduce)


def _check_fit(fit):
    require(is_integer(fit.ranks) and fit.ranks >= 2, "all_reduce.ranks", "at least 2", fit.ranks)
    _check_seconds("all_reduce.latency_s", fit.latency_s)
    _check_number("all_reduce.relative_error", fit.relative_error)
    _check_above_zero("all_reduce.bytes_per_s", fit.bytes_per_s)
    if fit.hosts is not None:
        fits = is_integer(fit.hosts) and 1 <= fit.hosts <= fit.ranks
        require(fits, "all_reduce.hosts", f"from 1 to the {fit.ranks} ranks", fit.hosts)


def _check_batch(batch):
    fits = is_integer(batch) and 1 <= batch <= MOST_EXAMPLES
    requirement = f"an integer of at least 1 (examples), and at most {MOST_EXAMPLES}"
    require(fits, "batch", requirement, batch)


def _check_names(where, named):
    seen = set()
    for each in named:
        require(isinstance(each.name, str), f"a name in {where}", "a string", each.name)
        require(each.name not in seen, f"names in {where}", "unique", each.name)
        seen.add(each.name)


def _check_seconds(name, value):
    _check_number(name, value)
    require(value <= _MOST_SECONDS, name, f"at most {_MOST_SECONDS:g} (seconds)", value)


def _check_above_zero(name, value):
    _check_number(name, value)
    require(value > 0, name, "greater than 0", value)


def _check_number(name, value):
    fits = is_number(value) and 0 <= value < math.inf
    require(fits, name, "a finite number that is not negative", value)


def _check_bytes(name, value):
    require(is_integer(value) and value >= 0, name, "an integer that is not negative", value)
    require(value <= _MOST_BYTES, name, f"at most {_MOST_BYTES}", value)
