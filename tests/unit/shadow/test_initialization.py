"""Initial values: the same on any number of ranks, and distributed as they are asked to be."""

import keras
import numpy as np
import pytest

from hvd_p3.shadow.embedding import partition
from hvd_p3.shadow.embedding.initialization import TableInitializer, check_initializer

_UNIFORM = keras.initializers.RandomUniform(-0.5, 1.5)
_NORMAL = keras.initializers.RandomNormal(2.0, 3.0)


def _assembled(initializer, ranks, kind, rows=37, width=5, name="table", seed=1):
    made = partition.make(kind, rows, width, ranks)
    table = np.full((rows, width), np.nan, "float32")
    part = TableInitializer(initializer, name, seed, width, "float32").part
    for owner in range(ranks):
        where = made.rows_of(owner), made.columns_of(owner)
        table[where] = part(*where)
    return table


@pytest.mark.parametrize("initializer", [_UNIFORM, _NORMAL])
def test_same_table_on_any_number_of_ranks(initializer):
    expected = _assembled(initializer, 1, "rows")
    assert np.all(np.isfinite(expected))
    for kind in ("rows", "columns"):
        for ranks in (2, 3, 4, 50):
            assert np.array_equal(_assembled(initializer, ranks, kind), expected), (kind, ranks)


def test_large_parts_are_made_piece_by_piece_without_a_trace():
    whole = _assembled(_UNIFORM, 1, "rows", rows=3000, width=700)  # more than one piece
    piece = TableInitializer(_UNIFORM, "table", 1, 700, "float32").part(
        slice(1400, 1600), slice(0, 700)
    )
    assert np.array_equal(whole[1400:1600], piece)


def test_seed_and_name_matter():
    first = _assembled(_UNIFORM, 1, "rows")
    assert not np.any(first == _assembled(_UNIFORM, 1, "rows", seed=2))
    assert not np.any(first == _assembled(_UNIFORM, 1, "rows", name="other"))
    assert np.array_equal(first, _assembled(_UNIFORM, 1, "rows"))


def test_uniform_values():
    values = _assembled(_UNIFORM, 1, "rows", rows=20000, width=10)
    assert values.min() >= -0.5 and values.max() < 1.5
    counts, _ = np.histogram(values, bins=50, range=(-0.5, 1.5))
    expected = values.size / 50
    assert np.sum((counts - expected) ** 2 / expected) < 100  # chi-squared, 49 degrees of freedom
    flat = values.ravel() - values.mean()
    for lag in (1, 10):  # the next column, the next row
        correlation = np.mean(flat[lag:] * flat[:-lag]) / np.var(flat)
        assert abs(correlation) < 0.01, lag


def test_normal_values():
    values = (_assembled(_NORMAL, 1, "rows", rows=20000, width=10).astype("float64") - 2.0) / 3.0
    for moment, expected, deviation in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        found = np.mean(values**moment)
        assert abs(found - expected) < 5 * np.sqrt(deviation / values.size), moment


def test_constants():
    for initializer, value in (("zeros", 0.0), ("ones", 1.0), (keras.initializers.Constant(7), 7)):
        assert np.all(_assembled(check_initializer(initializer), 3, "rows") == value)


def test_initializers_whose_elements_depend_on_each_other_are_an_error():
    with pytest.raises(ValueError, match=r"RandomUniform, .* Received: 'orthogonal'"):
        check_initializer("orthogonal")
