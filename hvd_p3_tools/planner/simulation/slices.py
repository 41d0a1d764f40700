"""Cuts and fuses gradients as `csrc/core/slicer.cc` does."""

import dataclasses

from hvd_p3_tools.planner import units
from hvd_p3_tools.planner.errors import PlannerError


@dataclasses.dataclass(frozen=True)
class PlannedSlice:
    """A piece of one gradient, or several small gradients.

    Args:
        tensors: tuple of int, the indices of its gradients: more than one if they are fused.
        offset: int, elements of 4 bytes before it in its gradient.
        bytes: int.
    """

    tensors: tuple
    offset: int
    bytes: int


ELEMENT_BYTES = 4
MOST_FUSION_BYTES = 120 * 1024
MOST_SLICES = 1 << 19  # of a step that is simulated


def plan(sizes, slice_bytes, fuse=True):
    """Plans the slices of a group of gradients of one type.

    A gradient of at least `slice_bytes` is cut into the fewest pieces that fit, of nearly equal
    length. Smaller ones are fused in the order of priority, up to `slice_bytes` and 120 KiB.

    Args:
        sizes: list of int, bytes of each gradient, the most urgent first.
        slice_bytes: int, upper bound of a slice.
        fuse: bool. Whether small gradients share slices.

    Returns:
        List of `PlannedSlice`, by the first of their gradients and the offset.

    Raises:
        PlannerError: If there are more than `MOST_SLICES`.
    """
    most = sum(max(1, -(-size // max(ELEMENT_BYTES, slice_bytes))) for size in sizes)
    if most > MOST_SLICES:
        raise PlannerError(
            f"slices of {units.print_size(slice_bytes)} are {most} slices a step, and at most "
            f"{MOST_SLICES} are simulated; use longer slices"
        )
    fusion_bytes = min(slice_bytes, MOST_FUSION_BYTES) if fuse else 0
    slices = []
    opened = None  # the fused slice that is still being filled
    for tensor, size in enumerate(sizes):
        if size == 0 or size >= fusion_bytes:
            slices.extend(_cut(tensor, size, slice_bytes))
        elif opened is None or slices[opened].bytes + size > fusion_bytes:
            opened = len(slices)
            slices.append(PlannedSlice((tensor,), 0, size))
        else:
            before = slices[opened]
            slices[opened] = PlannedSlice((*before.tensors, tensor), 0, before.bytes + size)
    return slices


def _cut(tensor, size, slice_bytes):
    elements, rest = divmod(size, ELEMENT_BYTES)
    most = max(1, slice_bytes // ELEMENT_BYTES)
    pieces = max(1, -(-elements // most))
    shortest, longer = divmod(elements, pieces)
    offset = 0
    for index in range(pieces):
        count = shortest + (index < longer)
        # What is no whole element, of gradients of other types, goes with the last piece.
        last = rest if index == pieces - 1 else 0
        yield PlannedSlice((tensor,), offset, count * ELEMENT_BYTES + last)
        offset += count
