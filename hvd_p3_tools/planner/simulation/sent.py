"""What an engine has sent."""

import typing


class Sent(typing.NamedTuple):
    """A slice or a fused buffer.

    Args:
        start, end: float, when it was in flight.
        wire_s: float, seconds in which it keeps the busiest link busy.
        bytes: int.
    """

    start: float
    end: float
    wire_s: float
    bytes: int
