"""The part of a table that one rank owns: its values, and the state of its optimizer."""

import threading

VALUES = "values"


class Shard:
    """Values and optimizer state of one owner. Any thread may call; calls take turns.

    So an update is never seen half-done: a lookup sees each message of updates whole or not at all.

    Args:
        values: NumPy array [rows of the owner, columns of the owner]. Becomes the shard's own.
        optimizer: `SparseOptimizer`.
    """

    def __init__(self, values, optimizer):
        self.lock = threading.Lock()
        self.values = values
        self.optimizer = optimizer
        self.state = optimizer.initial_state(len(values), values.dtype)

    def arrays(self):
        """Returns a dict of the name and the array of the values and each state, not copied.

        Hold `lock` while you read them.
        """
        return {VALUES: self.values, **self.state}

    def replace(self, arrays):
        """Puts other arrays in the place of some of `arrays()`."""
        with self.lock:
            for name, array in arrays.items():
                current = self.arrays()[name]
                current[...] = array

    def gather(self, rows):
        """Returns a copy of some rows, in the given order.

        Args:
            rows: NumPy array [n] of int64, the owner's own numbers of rows.
        """
        with self.lock:
            return self.values.take(rows, axis=0)

    def update(self, rows, gradients, statistic, learning_rate):
        """Applies gradients; see `SparseOptimizer.apply`."""
        with self.lock:
            self.optimizer.apply(self.values, self.state, rows, gradients, statistic, learning_rate)
