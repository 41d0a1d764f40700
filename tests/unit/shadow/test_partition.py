"""Every element of a table has one owner, which ids find."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_p3.shadow.embedding import partition

_SHAPES = st.tuples(st.integers(1, 30), st.integers(1, 9), st.integers(1, 7))
_KINDS = st.sampled_from(["rows", "columns"])


@given(_SHAPES, _KINDS)
def test_every_element_has_one_owner(shape, kind):
    rows, width, ranks = shape
    made = partition.make(kind, rows, width, ranks)
    owners = np.zeros((rows, width), int)
    for owner in range(ranks):
        owners[made.rows_of(owner), made.columns_of(owner)] += 1
    assert np.all(owners == 1)


@given(_SHAPES, _KINDS, st.data())
def test_ids_find_what_their_owner_has(shape, kind, data):
    rows, width, ranks = shape
    made = partition.make(kind, rows, width, ranks)
    table = np.arange(rows * width).reshape(rows, width)
    ids = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=20)), np.int64)
    found = np.full((len(ids), width), -1)
    for owner, positions, numbers in made.split(ids):
        part = table[made.rows_of(owner), made.columns_of(owner)]
        found[positions, made.columns_of(owner)] = part[numbers]
    assert np.array_equal(found, table[ids])


@given(st.integers(1, 1000), st.integers(1, 64), st.integers(1, 8))
def test_owners_have_equally_much(rows, width, ranks):
    by_rows = partition.make("rows", rows, width, ranks)
    lengths = [len(range(rows)[by_rows.rows_of(owner)]) for owner in range(ranks)]
    assert max(lengths) - min(lengths) <= 1
    by_columns = partition.make("columns", rows, width, ranks)
    lengths = [len(range(width)[by_columns.columns_of(owner)]) for owner in range(ranks)]
    assert max(lengths) - min(lengths) <= 1


def test_neighbouring_ids_have_different_owners():
    parts = partition.make("rows", 100, 4, 4).split(np.arange(4))
    assert [(owner, list(positions)) for owner, positions, _ in parts] == [
        (0, [0]),
        (1, [1]),
        (2, [2]),
        (3, [3]),
    ]


def test_other_kinds_are_an_error():
    with pytest.raises(ValueError, match=r"'rows' or 'columns'. Received: 'tables'"):
        partition.make("tables", 4, 4, 2)
