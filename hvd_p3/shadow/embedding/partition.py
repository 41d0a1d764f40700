"""Which rank owns which part of an embedding table.

Row-wise, row `r` belongs to rank `r % ranks`, where it is row number `r // ranks`: frequent ids,
which are often neighbours, are then spread over all owners. Column-wise, every rank owns some
neighbouring columns of all rows.
"""

import numpy as np

ROWS = "rows"
COLUMNS = "columns"


class RowPartition:
    """Deals the rows of a table out to the ranks, one after the other.

    Args:
        rows: int. Rows of the table.
        width: int. Columns of the table.
        ranks: int. Number of owners.
    """

    kind = ROWS

    def __init__(self, rows, width, ranks):
        self.rows, self.width, self.ranks = rows, width, ranks

    def rows_of(self, owner):
        """Returns the numbers in the table of the owner's rows, as a slice, in its own order."""
        return slice(owner, self.rows, self.ranks)

    def columns_of(self, owner):
        """Returns the owner's columns, as a slice."""
        return slice(0, self.width)

    def split(self, ids):
        """Finds the owners of rows.

        Args:
            ids: NumPy vector of int64, each from 0 to `rows - 1`.

        Returns:
            For each owner of any of them a tuple: the owner, the positions in `ids` of what it owns
            (vector of int, or a slice), and the numbers that the owner gives to these rows.
        """
        if self.ranks == 1:
            return [(0, slice(0, len(ids)), ids)] if len(ids) else []
        owners = ids % self.ranks
        parts = []
        for owner in range(self.ranks):
            positions = np.flatnonzero(owners == owner)
            if len(positions):
                parts.append((owner, positions, ids[positions] // self.ranks))
        return parts


class ColumnPartition:
    """Gives each rank neighbouring columns of all rows, as equally many as possible.

    Args:
        rows: int. Rows of the table.
        width: int. Columns of the table.
        ranks: int. Number of owners. Those beyond `width` own nothing.
    """

    kind = COLUMNS

    def __init__(self, rows, width, ranks):
        self.rows, self.width, self.ranks = rows, width, ranks

    def rows_of(self, owner):
        """As `RowPartition.rows_of`."""
        return slice(0, self.rows)

    def columns_of(self, owner):
        """As `RowPartition.columns_of`."""
        return slice(owner * self.width // self.ranks, (owner + 1) * self.width // self.ranks)

    def split(self, ids):
        """As `RowPartition.split`. All owners have a part of all rows."""
        if not len(ids):
            return []
        everything = slice(0, len(ids))
        return [
            (owner, everything, ids)
            for owner in range(self.ranks)
            if self.columns_of(owner).start < self.columns_of(owner).stop
        ]


_CLASSES = {ROWS: RowPartition, COLUMNS: ColumnPartition}


def check_kind(kind):
    """Raises `ValueError` unless `kind` is "rows" or "columns"."""
    if kind not in _CLASSES:
        raise ValueError(f"partition must be 'rows' or 'columns'. Received: {kind!r}")


def make(kind, rows, width, ranks):
    """Returns a `RowPartition` or `ColumnPartition`, by its kind."""
    check_kind(kind)
    return _CLASSES[kind](rows, width, ranks)
