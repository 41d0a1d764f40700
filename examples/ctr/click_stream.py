"""Reproducible click data with a planted ground truth.

An impression has dense features, standard normal, and one id for each categorical feature. Ids
follow Zipf's law: id k of a feature has probability proportional to (k + 1) ** -exponent. Every id
has a hidden bias and a hidden vector. The logit of a click is linear in the dense features and the
biases, plus the dot products of all pairs of hidden vectors, scaled: what a factorization machine
(Rendle, 2010) can represent exactly, and a DLRM can learn.
"""

import dataclasses
import functools

import numpy as np

TRAINING, HELD_OUT = 0, 1  # streams, which share no impression

_HIDDEN_WIDTH = 4


@dataclasses.dataclass(frozen=True)
class ClickStream:
    """Endless impressions, of which any batch can be made by itself.

    Args:
        rows: Tuple of int, the number of ids of each categorical feature.
        dense_features: int.
        exponent: float > 0, of Zipf's law.
        bias: float. Logit of the average impression; sets the click-through rate.
        strength: float >= 0. How much the features decide; 0 is chance alone.
        interaction: float >= 0. How much the pairs of ids decide, beside dense features and biases.
            With 1, all three decide alike; then a model that learns from a stream of some hundred
            steps is still finding the pairs at its end, and how far it has come is chance.
        seed: int. Others give another ground truth and other impressions.

    Example:

    ```python
    stream = ClickStream()
    dense, ids, clicks = stream.batch(TRAINING, 0, 256)
    ```
    """

    rows: tuple = (10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50)
    dense_features: int = 8
    exponent: float = 1.1
    bias: float = -1.3
    strength: float = 1.5
    interaction: float = 0.3
    seed: int = 0

    @property
    def total_rows(self):
        """Rows of a table that has the ids of all features, one feature after the other."""
        return sum(self.rows)

    @functools.cached_property
    def first_rows(self):
        """The row of each feature's id 0 in that table; NumPy vector of int64."""
        return np.concatenate([[0], np.cumsum(self.rows)[:-1]]).astype(np.int64)

    @functools.cached_property
    def _cumulative(self):
        """For each feature the probabilities of ids up to each."""
        tables = []
        for rows in self.rows:
            weights = np.arange(1, rows + 1) ** -self.exponent
            tables.append(np.cumsum(weights) / np.sum(weights))
        return tables

    @functools.cached_property
    def _truth(self):
        """Weights of the dense features, hidden biases and hidden vectors of all rows."""
        generator = np.random.default_rng([self.seed, 0])
        features = len(self.rows)
        # Each of the three parts has about the same variance; `interaction` scales the last.
        weights = generator.normal(size=self.dense_features) / np.sqrt(self.dense_features)
        biases = generator.normal(size=self.total_rows) / np.sqrt(features)
        pairs = features * (features - 1) / 2
        scale = (max(pairs, 1) * _HIDDEN_WIDTH) ** -0.25
        vectors = generator.normal(size=(self.total_rows, _HIDDEN_WIDTH)) * scale
        return weights, biases, vectors

    def batch(self, stream, index, size):
        """Returns one batch; the same whenever it is asked for.

        Args:
            stream: `TRAINING` or `HELD_OUT`.
            index: int, number of the batch.
            size: int, number of impressions.

        Returns:
            A tuple of NumPy arrays: dense features [size, dense_features] float32, rows of the
            ids in the common table [size, features] int64, and clicks [size, 1] float32, 0 or 1.
        """
        generator = np.random.default_rng([self.seed, 1, stream, index])
        dense = generator.normal(size=(size, self.dense_features)).astype(np.float32)
        draws = generator.random((size, len(self.rows)))
        ids = np.stack(
            [
                np.searchsorted(cumulative, draws[:, feature], side="right")
                for feature, cumulative in enumerate(self._cumulative)
            ],
            axis=1,
        )
        rows = ids + self.first_rows
        clicks = generator.random(size) < self.probabilities(dense, rows)
        return dense, rows, clicks[:, np.newaxis].astype(np.float32)

    def probabilities(self, dense, rows):
        """Returns the true probabilities of a click, NumPy vector [size] of float64."""
        weights, biases, vectors = self._truth
        chosen = vectors[rows]
        # The sum over pairs is half of the square of the sum without the squares.
        pairs = 0.5 * (np.sum(np.sum(chosen, axis=1) ** 2, axis=1) - np.sum(chosen**2, axis=(1, 2)))
        logits = self.bias + self.strength * (
            dense @ weights + np.sum(biases[rows], axis=1) + self.interaction * pairs
        )
        return 1.0 / (1.0 + np.exp(-logits))
