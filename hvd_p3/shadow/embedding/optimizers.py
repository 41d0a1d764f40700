"""Optimizers of embedding tables: they change only the rows that have a gradient.

The rank that sends a gradient decides its learning rate and computes what needs whole rows; the
owner keeps the state.
"""

import numbers

import keras
import numpy as np

_PACKAGE = "hvd_p3.shadow"


class SparseOptimizer:
    """What optimizers of embedding tables have in common. Subclass it to write one.

    A subclass has a `get_config` with the arguments of its constructor, and is registered with
    `keras.saving.register_keras_serializable`. `state_names` lists its numbers per row.

    Args:
        learning_rate: float > 0. May be assigned at any time; each update uses the value that the
            rank that sends it has at that time.
    """

    state_names = ()  # one float per row and name, kept by the owner

    def __init__(self, learning_rate):
        self.learning_rate = learning_rate

    @property
    def learning_rate(self):
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        self._learning_rate = _number("learning_rate", value, above=0.0)

    def initial_state(self, rows, dtype):
        """Returns a dict of the name and the initial vector of each state.

        Args:
            rows: int. Length of the vectors.
            dtype: NumPy dtype of the table.
        """
        return {}

    def row_statistic(self, gradients):
        """Computes, where the gradient is, one number per row for `apply`. Sees whole rows.

        Args:
            gradients: NumPy array [n, width] of the table's dtype, one row for each different id.

        Returns:
            NumPy array [n] of the table's dtype, or `None` if the optimizer needs none.
        """
        return None

    def apply(self, values, state, rows, gradients, statistic, learning_rate):
        """Updates some rows in place, on their owner, which holds the table's lock.

        Args:
            values: NumPy array [rows of the owner, columns of the owner].
            state: dict of the vectors of `initial_state`.
            rows: NumPy array [n] of int64, each row once.
            gradients: NumPy array [n, columns of the owner].
            statistic: What `row_statistic` returned on the sending rank.
            learning_rate: float.
        """
        raise NotImplementedError(f"{type(self).__name__} must define apply")

    def get_config(self):
        """Returns the arguments of the constructor, for saving."""
        return {"learning_rate": self.learning_rate}

    @classmethod
    def from_config(cls, config):
        """Makes an optimizer from what `get_config` returned."""
        return cls(**config)


@keras.saving.register_keras_serializable(_PACKAGE)
class SparseSGD(SparseOptimizer):
    """Stochastic gradient descent for the table of a `hvd_p3.shadow.ShardedEmbedding`.

    Each row with a gradient g becomes `w - learning_rate * g`.

    Args:
        learning_rate: float > 0.

    Raises:
        ValueError: If `learning_rate` is not above 0.

    Example:

    ```python
    layer = hvd_p3.shadow.ShardedEmbedding(10**6, 16, optimizer=hvd_p3.shadow.SparseSGD(0.1))
    ```
    """

    def apply(self, values, state, rows, gradients, statistic, learning_rate):
        values[rows] -= values.dtype.type(learning_rate) * gradients


@keras.saving.register_keras_serializable(_PACKAGE)
class RowwiseAdagrad(SparseOptimizer):
    """Adagrad with one accumulator per row, for a `hvd_p3.shadow.ShardedEmbedding`.

    Each row with a gradient g of `width` numbers becomes:

        a = a + sum(g ** 2) / width
        w = w - learning_rate * g / (sqrt(a) + epsilon)

    Its state is one number per row, where Adagrad has one per element. Column-wise partitions have
    the same result: the sum is over the whole row.

    Method: Adagrad (Duchi et al., 2011) with the row-wise accumulator that DLRM (Naumov et al.,
    2019) uses for its embedding tables.

    Args:
        learning_rate: float > 0.
        initial_accumulator: float >= 0. Value of `a` before the first update of a row.
        epsilon: float > 0. Keeps the quotient finite.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    ```python
    layer = hvd_p3.shadow.ShardedEmbedding(
        10**6, 16, optimizer=hvd_p3.shadow.RowwiseAdagrad(0.05)
    )
    ```
    """

    state_names = ("accumulator",)

    def __init__(self, learning_rate, initial_accumulator=0.0, epsilon=1e-8):
        super().__init__(learning_rate)
        self.initial_accumulator = _number("initial_accumulator", initial_accumulator, least=0.0)
        self.epsilon = _number("epsilon", epsilon, above=0.0)

    def initial_state(self, rows, dtype):
        return {"accumulator": np.full(rows, self.initial_accumulator, dtype)}

    def row_statistic(self, gradients):
        return np.mean(np.square(gradients), axis=1)

    def apply(self, values, state, rows, gradients, statistic, learning_rate):
        number = values.dtype.type
        accumulator = state["accumulator"][rows] + statistic
        state["accumulator"][rows] = accumulator
        scale = number(learning_rate) / (np.sqrt(accumulator) + number(self.epsilon))
        values[rows] -= scale[:, np.newaxis] * gradients

    def get_config(self):
        return {
            **super().get_config(),
            "initial_accumulator": self.initial_accumulator,
            "epsilon": self.epsilon,
        }


def check_optimizer(optimizer):
    """Returns the optimizer of a layer, also from its serialized form.

    Raises:
        TypeError: If it is no `SparseOptimizer`.
    """
    if isinstance(optimizer, dict):
        optimizer = keras.saving.deserialize_keras_object(optimizer)
    if not isinstance(optimizer, SparseOptimizer):
        raise TypeError(
            "optimizer must be one for embedding tables, for example "
            "hvd_p3.shadow.RowwiseAdagrad(0.05) or hvd_p3.shadow.SparseSGD(0.1). "
            f"Received: {optimizer!r} of type {type(optimizer)}"
        )
    return optimizer


def _number(name, value, above=None, least=None):
    is_number = isinstance(value, numbers.Real) or (
        isinstance(value, np.ndarray) and not value.ndim
    )
    bound = f"above {above}" if least is None else f"of at least {least}"
    if not is_number or not np.isfinite(value):
        raise ValueError(f"{name} must be a finite number {bound}. Received: {value!r}")
    if (above is not None and value <= above) or (least is not None and value < least):
        raise ValueError(f"{name} must be a number {bound}. Received: {value!r}")
    return float(value)
