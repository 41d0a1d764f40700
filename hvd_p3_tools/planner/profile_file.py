"""Profiles as JSON files. `docs/planner.md` documents them."""

import dataclasses
import json
from pathlib import Path

from hvd_p3_tools.planner.checks import is_integer, require
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.model_tables import Convolution
from hvd_p3_tools.planner.profile import AllReduceFit, Gradient, Layer, Profile

FORMAT = 1  # in `hvd_p3_profile`; another number is another meaning of what is written
_MOST_SIZE = 1 << 20  # of a convolution, in one direction


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
    for name in ("all_reduce", "flops_per_s"):
        if described[name] is None:
            del described[name]
    if "all_reduce" in described and described["all_reduce"]["hosts"] is None:
        del described["all_reduce"]["hosts"]
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
    require(isinstance(layers, (list, tuple)), "layers", "a list", layers)
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
        described = json.loads(text)
    except RecursionError:
        raise PlannerError(f"the profile {path} is no profile: it is nested too deeply") from None
    except ValueError as error:  # numbers of thousands of digits too
        raise PlannerError(f"the profile {path} is not JSON: {error}") from None
    try:
        return from_dict(described)
    except PlannerError as error:
        raise PlannerError(f"the profile {path} cannot be used: {error}") from None


def _layer(described, where):
    require(isinstance(described, dict), where, "an object", described)
    values = dict(described)
    gradients = values.get("gradients")
    require(isinstance(gradients, (list, tuple)), f"{where}.gradients", "a list", gradients)
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
            and all(is_integer(size) and 1 <= size <= _MOST_SIZE for size in value)
        )
        require(fits, f"{where}.{name}", f"a list of {length} positive integers", value)
        sizes[name] = tuple(value)
    groups = convolution.groups
    require(is_integer(groups) and groups >= 1, f"{where}.groups", "a positive integer", groups)
    for name in ("input", "output"):
        channels = sizes[name][2]
        requirement = f"a divisor of the {channels} channels of its {name}"
        require(channels % groups == 0, f"{where}.groups", requirement, groups)
    return dataclasses.replace(convolution, **sizes)


def _make(kind, values, where):
    """Calls a dataclass with values from a file, of which it must know the names."""
    require(isinstance(values, dict), where, "an object", values)
    fields = dataclasses.fields(kind)
    unknown = set(values) - {field.name for field in fields}
    if unknown:
        raise PlannerError(f"{where} has an unknown entry {min(unknown)!r}; remove it")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in values:
            raise PlannerError(f"{where} lacks {field.name!r}; add it")
    return kind(**values)
