"""Slices. That they are those of the engine is checked by `tests/parallel/checks_timeline.py`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.simulation.slices import (
    MOST_FUSION_BYTES,
    MOST_SLICES,
    PlannedSlice,
    plan,
)


def test_large_gradients_are_cut_evenly():
    # 10 numbers in slices of at most 4: three, of 4, 3 and 3.
    assert plan([40], 16) == [
        PlannedSlice((0,), 0, 16),
        PlannedSlice((0,), 4, 12),
        PlannedSlice((0,), 7, 12),
    ]


def test_small_gradients_are_fused_until_one_does_not_fit():
    # 60 and 30 fit 100 bytes; 20 more do not, and begin a new slice; 200 are cut.
    assert plan([60, 30, 200, 20, 80, 4], 100) == [
        PlannedSlice((0, 1), 0, 90),
        PlannedSlice((2,), 0, 100),
        PlannedSlice((2,), 25, 100),
        PlannedSlice((3, 4), 0, 100),
        PlannedSlice((5,), 0, 4),
    ]


def test_more_slices_than_are_simulated():
    size = 4 * MOST_SLICES
    with pytest.raises(PlannerError, match=f"are {MOST_SLICES + 1} slices a step, and at most"):
        plan([size, 4], 4)


@given(st.lists(st.integers(0, 200_000), max_size=20), st.integers(4, 500_000), st.booleans())
def test_every_byte_is_in_one_slice(sizes, slice_bytes, fuse):
    slices = plan(sizes, slice_bytes, fuse)
    assert sum(each.bytes for each in slices) == sum(sizes)
    assert {tensor for each in slices for tensor in each.tensors} == set(range(len(sizes)))
    for each in slices:
        assert each.bytes <= slice_bytes + 3  # what is no whole number goes with the last slice
        if len(each.tensors) > 1:
            assert fuse
            assert each.bytes <= MOST_FUSION_BYTES
            assert each.bytes == sum(sizes[tensor] for tensor in each.tensors)
