"""Names of gradients are the same on ranks that built other models before."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_p3 import tensor_names


def test_automatic_numbers_are_relative():
    first = ["dense/kernel", "dense/bias", "dense_1/kernel"]
    later = ["dense_4/kernel", "dense_4/bias", "dense_5/kernel"]
    expected = ["dense/kernel", "dense/bias", "dense+1/kernel"]
    assert tensor_names.rank_independent(first) == expected
    assert tensor_names.rank_independent(later) == expected


def test_order_of_numbered_layers_stays_visible():
    names = tensor_names.rank_independent(["block_2/w", "block_1/w"])
    assert names == ["block+1/w", "block/w"]


def test_name_of_the_model_does_not_count():
    built = ["sequential_1/dense_1/kernel", "sequential_1/dense_2/kernel"]
    loaded = ["dense/kernel", "dense_1/kernel"]
    assert tensor_names.rank_independent(built) == ["dense/kernel", "dense+1/kernel"]
    assert tensor_names.rank_independent(loaded) == ["dense/kernel", "dense+1/kernel"]
    assert tensor_names.rank_independent(["sequential/dense/kernel"]) == ["dense/kernel"]
    assert tensor_names.rank_independent([]) == []


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 50))
def test_shifting_all_numbers_changes_nothing(numbers, shift):
    def paths(offset):
        return [f"model/layer_{number + offset}/kernel" for number in numbers]

    assert tensor_names.rank_independent(paths(1)) == tensor_names.rank_independent(paths(shift))
