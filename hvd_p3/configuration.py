"""Every setting of hvd_p3: its argument of `hvd_p3.init`, its environment variable, its check."""

import dataclasses
import difflib
import os
import warnings

from hvd_p3 import horovod_settings

_PREFIX = "HVD_P3_"


def _parse_integer(text):
    return int(text)


def _parse_boolean(text):
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)


def _at_least(least):
    def check(value):
        return value >= least

    return check


def _setting(default, parse, kind, check, requirement, meaning):
    """A dataclass field that carries what is needed to read, check and document it."""
    metadata = {
        "parse": parse,
        "kind": kind,
        "check": check,
        "requirement": requirement,
        "meaning": meaning,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The settings of one process. All ranks need the same; most are checked to be.

    Args: see the table in `docs/settings.md`, which lists each field with its environment
        variable, default and unit. An argument of `hvd_p3.init` wins over the environment.

    Raises:
        ValueError: If a value is out of its range; the message names the setting.
    """

    slice_bytes: int = _setting(
        120 * 1024,
        _parse_integer,
        int,
        lambda value: 1 <= value <= 1 << 30,
        "an integer from 1 to 1073741824 (bytes)",
        "Largest slice of a gradient that is sent as one message, in bytes.",
    )
    credit_bytes: int = _setting(
        768 * 1024,
        _parse_integer,
        int,
        _at_least(1),
        "an integer of at least 1 (bytes)",
        "Bytes in flight at once; a more urgent slice waits for at most that much.",
    )
    autotune: bool = _setting(
        False,
        _parse_boolean,
        bool,
        lambda value: True,
        "a boolean (0 or 1)",
        "Whether P3Callback searches slice_bytes and credit_bytes during the first training steps.",
    )
    priorities: bool = _setting(
        True,
        _parse_boolean,
        bool,
        lambda value: True,
        "a boolean (0 or 1)",
        "Whether gradients leave in order of priority; otherwise in the order in which "
        "backpropagation makes them, as in Horovod.",
    )
    overlap: bool = _setting(
        True,
        _parse_boolean,
        bool,
        lambda value: True,
        "a boolean (0 or 1)",
        "Whether P3Callback and turn_overlap_on turn overlapped mode on; otherwise training is in "
        "immediate mode.",
    )
    trace: bool = _setting(
        False,
        _parse_boolean,
        bool,
        lambda value: True,
        "a boolean (0 or 1)",
        "Whether the engine records what it does, for `hvd_p3.take_trace()`.",
    )
    timeline: str = _setting(
        "",
        str,
        str,
        lambda value: True,
        "a path (str)",
        "File to which rank 0 writes the timeline of the whole run; none if empty.",
    )
    stall_warning_s: float = _setting(
        60.0,
        float,
        (int, float),
        _at_least(0),
        "a number of at least 0 (seconds)",
        "A gradient that has waited so long for other ranks is reported, with the ranks that miss "
        "it, in seconds; 0 reports none.",
    )
    stall_timeout_s: float = _setting(
        0.0,
        float,
        (int, float),
        _at_least(0),
        "a number of at least 0 (seconds)",
        "A gradient that has waited so long for other ranks ends the job with an error, in "
        "seconds; 0 waits forever.",
    )
    shutdown_timeout_s: float = _setting(
        5.0,
        float,
        (int, float),
        _at_least(0),
        "a number of at least 0 (seconds)",
        "How long a rank that ends waits for the others to end with it while nothing is reduced, "
        "in seconds.",
    )

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            accepted = isinstance(value, field.metadata["kind"]) and (
                field.metadata["kind"] is bool or not isinstance(value, bool)
            )
            if not accepted or not field.metadata["check"](value):
                raise ValueError(_complaint(field, field.name, value))


def environment_variable(field_name):
    return _PREFIX + field_name.upper()


def _complaint(field, source, received):
    return f"{source} must be {field.metadata['requirement']}. Received: {received!r}"


def load(arguments):
    """Makes the configuration from arguments and the environment.

    Args:
        arguments: dict of setting name to value, `None` for "not given".

    Returns:
        A `Configuration`. Where hvd_p3's variable is not set, Horovod's counts if there is one.

    Raises:
        TypeError: If an argument is no setting.
        ValueError: If a value cannot be read or is out of range; names the argument or variable.
    """
    fields = {field.name: field for field in dataclasses.fields(Configuration)}
    for name in arguments:
        if name not in fields:
            raise TypeError(
                f"hvd_p3.init got an unknown argument '{name}'{_suggestion(name, fields)}. "
                f"The settings are {', '.join(fields)}."
            )
    known_variables = {environment_variable(name) for name in fields}
    for variable in os.environ:
        if variable.startswith(_PREFIX) and variable not in known_variables | _OUTSIDE_VARIABLES:
            warnings.warn(
                f"The environment variable {variable} is no setting of hvd_p3 and has no effect"
                f"{_suggestion(variable, known_variables)}.",
                stacklevel=3,
            )
    values = {name: value for name, value in arguments.items() if value is not None}
    for name, field in fields.items():
        variable = environment_variable(name)
        text = os.environ.get(variable)
        if name in values:
            continue
        if text is None:
            of_horovod = horovod_settings.variable_for(name)
            if of_horovod is None:
                continue
            variable, text = of_horovod
        try:
            values[name] = field.metadata["parse"](text)
            accepted = field.metadata["check"](values[name])
        except ValueError:
            accepted = False
        if not accepted:
            raise ValueError(_complaint(field, variable, text))
    return Configuration(**values)


# Read by the build and the tools, not by the package.
_OUTSIDE_VARIABLES = {
    "HVD_P3_BENCHMARK_NAMESPACES",
    "HVD_P3_BENCHMARK_TEMPORARY",
    "HVD_P3_CACHE",
    "HVD_P3_ENGINE_SCENARIO",
    "HVD_P3_TEST_REWRITING",
    "HVD_P3_WITH_CUDA",
}


def _suggestion(name, candidates):
    close = difflib.get_close_matches(name, list(candidates), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
