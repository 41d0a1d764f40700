"""Initial values of a table in which each element depends on the seed and its own place only.

So every owner makes its part by itself, and the table is the same on any number of ranks.
"""

import hashlib

import keras
import numpy as np

_ELEMENTS_AT_ONCE = 1 << 20

# SplitMix64 (Steele et al., Fast Splittable Pseudorandom Number Generators, 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

_SUPPORTED = "RandomUniform, RandomNormal, Zeros, Ones, Constant"


def check_initializer(initializer):
    """Returns the Keras initializer; raises `ValueError` if tables cannot use it.

    Args:
        initializer: str, dict or `keras.initializers.Initializer`, as Keras's layers take.
    """
    found = keras.initializers.get(initializer)
    known = keras.initializers
    if not isinstance(
        found,
        (known.RandomUniform, known.RandomNormal, known.Zeros, known.Ones, known.Constant),
    ):
        raise ValueError(
            "embeddings_initializer must be one whose elements do not depend on each other, so "
            f"that every rank can make its own part: {_SUPPORTED}. Received: {initializer!r}"
        )
    return found


class TableInitializer:
    """Makes any part of the initial table.

    Args:
        initializer: What `check_initializer` has returned. Its own seed is not used.
        name: str. Tables of other names get other values.
        seed: int.
        width: int. Columns of the table.
        dtype: str. "float32" or "float64".
    """

    def __init__(self, initializer, name, seed, width, dtype):
        self._initializer = initializer
        self._width = width
        self._dtype = np.dtype(dtype)
        digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
        self._keys = np.frombuffer(digest, "<u8")

    def part(self, rows, columns):
        """Returns the values of a part of the table.

        Args:
            rows: slice with start, stop and step. Rows of the table.
            columns: slice with start and stop.

        Returns:
            NumPy array of the table's dtype, of the shape of the part.
        """
        rows = np.arange(rows.start, rows.stop, rows.step or 1, dtype=np.uint64)
        columns = np.arange(columns.start, columns.stop, dtype=np.uint64)
        values = np.empty((len(rows), len(columns)), self._dtype)
        step = max(1, _ELEMENTS_AT_ONCE // max(1, len(columns)))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            places = block[:, np.newaxis] * np.uint64(self._width) + columns
            values[start : start + step] = self._values(places)
        return values

    def _values(self, places):
        how, kinds = self._initializer, keras.initializers
        if isinstance(how, kinds.RandomUniform):
            return how.minval + (how.maxval - how.minval) * self._uniform(places, 0)
        if isinstance(how, kinds.RandomNormal):
            # Box and Muller, A Note on the Generation of Random Normal Deviates, 1958.
            radius = np.sqrt(-2.0 * np.log1p(-self._uniform(places, 0)))
            normal = radius * np.cos(2.0 * np.pi * self._uniform(places, 1))
            return how.mean + how.stddev * normal
        if isinstance(how, kinds.Constant):
            return np.full(places.shape, how.value)
        return np.full(places.shape, 1.0 if isinstance(how, kinds.Ones) else 0.0)

    def _uniform(self, places, key):
        """float64 values from 0 to below 1, with 53 random bits."""
        bits = _mixed(_mixed(places * _GOLDEN + self._keys[key]) ^ self._keys[1 - key])
        return (bits >> np.uint64(11)) * 2.0**-53


def _mixed(bits):
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))
