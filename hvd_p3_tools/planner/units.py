"""Quantities with units, such as 10Gbit/s, 40 GiB and 3 ms: read and printed by pint.

Within the planner numbers are plain floats in bytes, seconds, bytes per second, and operations per
second.
"""

import functools
import math
import re

import pint

from hvd_p3_tools.planner.errors import PlannerError

# A number, and the unit that follows. Nothing else reaches pint's parser.
_QUANTITY = re.compile(
    r"\s*([+-]?[0-9][0-9_]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ][\w/ ]*)\s*"
)


# pint's own list takes half a second to load, and has bits without a dimension, so that hertz would
# pass for bits per second. These are all units that the planner knows.
_DEFINITIONS = """
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
milli- = 1e-3 = m-
micro- = 1e-6 = µ- = μ- = u-
nano- = 1e-9 = n-
kibi- = 2**10 = Ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
tebi- = 2**40 = Ti-
second = [time] = s = sec
minute = 60 * second = min
hour = 60 * minute = h
bit = [information]
byte = 8 * bit = B
bit_per_second = bit / second = bps
operation = [operation] = FLOP = flop
operation_per_second = operation / second = FLOPS = flops
""".strip().splitlines()


@functools.cache
def _registry():
    registry = pint.UnitRegistry(None)
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


def bandwidth(text, name="bandwidth"):
    """Reads a bandwidth. A unit without a time is taken as of a second, as in `10Gbit`.

    Example:

    ```python
    units.bandwidth("10Gbit/s")  # 1.25e9
    ```

    Args:
        text: str, such as `"10Gbit/s"`, `"1.2 GB/s"` or `"10Gbit"`.
        name: str. What it is, for the error.

    Returns:
        float, in bytes per second.

    Raises:
        PlannerError: If it is none, or not above 0.
    """
    examples = "10Gbit/s or 1.2 GB/s"
    number, unit = _split(text, name, examples)
    registry = _registry()
    if unit.dimensionality == registry.byte.dimensionality:
        unit = unit / registry.second
    value = _convert(number, unit, "byte / second", text, name, examples)
    return _above_zero(value, text, name)


def size(text, name="size"):
    """Reads a number of bytes, such as `"40 GiB"` or `"120KiB"`.

    Args:
        text: str.
        name: str. What it is, for the error.

    Returns:
        float, in bytes.

    Raises:
        PlannerError: If it is none, or negative.
    """
    return _read(text, name, "byte", "40 GiB or 500 MB")


def duration(text, name="time"):
    """Reads a time, such as `"3 ms"` or `"20us"`.

    Args:
        text: str.
        name: str. What it is, for the error.

    Returns:
        float, in seconds.

    Raises:
        PlannerError: If it is none, or negative.
    """
    return _read(text, name, "second", "3 ms or 20us")


def throughput(text, name="throughput"):
    """Reads how many floating-point operations a device does in a second.

    Args:
        text: str, such as `"15 TFLOP/s"` or `"15TFLOPS"`.
        name: str. What it is, for the error.

    Returns:
        float, in operations per second.

    Raises:
        PlannerError: If it is none, or not above 0.
    """
    return _above_zero(_read(text, name, "FLOP / second", "15 TFLOP/s or 300 GFLOP/s"), text, name)


def print_bandwidth(bytes_per_s):
    """Returns a bandwidth in bits, such as `"10 Gbit/s"`."""
    return _print(8 * bytes_per_s, "bit / second")


def print_size(number_of_bytes):
    """Returns a number of bytes in units of 1000, such as `"574.7 MB"`."""
    return _print(number_of_bytes, "byte")


def print_duration(seconds):
    """Returns a time, such as `"3.2 ms"`."""
    return _print(seconds, "second")


def print_throughput(operations_per_s):
    """Returns operations per second, such as `"15 TFLOP/s"`."""
    return _print(operations_per_s, "FLOP / second")


def _print(value, unit):
    quantity = _registry().Quantity(float(value), unit)
    if value != 0 and math.isfinite(value):
        quantity = quantity.to_compact()
    return f"{quantity:.4g~P}"


def _read(text, name, unit, examples):
    number, given = _split(text, name, examples)
    value = _convert(number, given, unit, text, name, examples)
    if value < 0:
        raise PlannerError(f"{name} must not be negative. Received: {text}")
    return value


def _split(text, name, examples):
    parts = _QUANTITY.fullmatch(text)
    problem = PlannerError(
        f"{name} must be a number with a unit, such as {examples}. Received: {text}"
    )
    if parts is None:
        raise problem
    try:
        return float(parts[1]), _registry().parse_units(parts[2].strip())
    except (pint.PintError, ValueError, TypeError, AttributeError, AssertionError):
        raise problem from None


def _convert(number, given, unit, text, name, examples):
    try:
        value = _registry().Quantity(number, given).to(unit).magnitude
    except pint.PintError:
        raise PlannerError(
            f"{name} has a unit that does not fit; use one as in {examples}. Received: {text}"
        ) from None
    if not math.isfinite(value):
        raise PlannerError(f"{name} must be finite. Received: {text}")
    return value


def _above_zero(value, text, name):
    if value <= 0:
        raise PlannerError(f"{name} must be greater than 0. Received: {text}")
    return value
