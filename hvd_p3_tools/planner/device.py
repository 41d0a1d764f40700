"""A device that computes, by the numbers that times and memory are estimated from."""

import dataclasses
import math

from hvd_p3_tools.planner.errors import PlannerError


@dataclasses.dataclass(frozen=True)
class Device:
    """A device.

    Args:
        flops_per_s: float. Operations per second that it sustains, in training; well below what
            its data sheet says.
        memory_bytes: float. Its memory.
        memory_bytes_per_s: float. What its memory reads and writes.
        layer_overhead_s: float. Seconds that each pass of each layer takes beyond its operations.

    Raises:
        PlannerError: If a value is out of its range.
    """

    flops_per_s: float = 10e12
    memory_bytes: float = 16 * 2**30
    memory_bytes_per_s: float = 500e9
    layer_overhead_s: float = 10e-6

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "layer_overhead_s" else math.nextafter(0, 1)
            if not least <= value < math.inf:
                bound = "not negative" if least == 0 else "greater than 0"
                raise PlannerError(f"{field.name} must be finite and {bound}. Received: {value!r}")
