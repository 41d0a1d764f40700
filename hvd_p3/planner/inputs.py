"""The batches that a call of `model.fit` would train on, and what it takes to make them."""

import itertools
import time

import keras
import numpy as np
import tensorflow as tf

from hvd_p3_tools.planner.errors import PlannerError

_KERAS_BATCH = 32  # what `fit` takes if it is told nothing
_BATCHES = 10  # that are timed


def first_batch(x, y=None, batch_size=None, shuffle=True, wanted=None):
    """Finds the first inputs of a call of `fit`.

    Args:
        x, y, batch_size, shuffle: As `fit` got them.
        wanted: int. The batch that is to be used instead of `batch_size`, or None.

    Returns:
        The inputs of a batch, and what `next_s` times.

    Raises:
        PlannerError: If the data come in batches of another size than `wanted`.
    """
    if _makes_batches(x):
        first = x[0] if isinstance(x, keras.utils.PyDataset) else next(iter(x))
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(first)
        size = tf.nest.flatten(inputs)[0].shape[0]
        if wanted not in (None, size):
            raise PlannerError(
                f"--batch {wanted} does not fit the program, whose data come in batches of {size}; "
                "change these in the program, or leave --batch out"
            )
        return inputs, x
    batches = _Arrays(x, y, wanted or batch_size or _KERAS_BATCH, shuffle)
    if wanted is not None and batches.examples < wanted:
        raise PlannerError(
            f"--batch {wanted} does not fit the program, which has {batches.examples} examples"
        )
    return batches.first_inputs(), batches


def _makes_batches(x):
    return isinstance(x, (tf.data.Dataset, keras.utils.PyDataset)) or hasattr(x, "__next__")


def next_s(batches):
    """Times batches as `fit` takes them, after the first, with which a lot may be prepared once.

    Args:
        batches: Iterable of batches, or `keras.utils.PyDataset`, whose workers work at the same
            time.

    Returns:
        float, seconds of a batch; 0 if there is only one.
    """
    workers = 1
    if isinstance(batches, keras.utils.PyDataset):
        workers = max(1, batches.workers)
        batches = _items(batches)
    iterator = iter(batches)
    next(iterator, None)
    start = time.perf_counter()
    count = sum(1 for _ in itertools.islice(iterator, _BATCHES))
    if count == 0:
        return 0.0
    return (time.perf_counter() - start) / count / workers


def _items(dataset):
    numbers = itertools.count() if dataset.num_batches is None else range(dataset.num_batches)
    return (dataset[number] for number in numbers)


class _Arrays:
    """Batches of arrays and tensors, in a random order or as they are."""

    def __init__(self, x, y, batch, shuffle):
        data = (x,) if y is None else (x, y)
        self._data = tf.nest.map_structure(
            lambda each: each if isinstance(each, tf.Tensor) else np.asarray(each), data
        )
        self._batch = batch
        self._shuffle = bool(shuffle)
        self.examples = int(tf.nest.flatten(self._data)[0].shape[0])

    def first_inputs(self):
        return self._rows(np.arange(min(self._batch, self.examples)))[0]

    def __iter__(self):
        order = np.arange(self.examples)
        if self._shuffle:
            order = np.random.default_rng(0).permutation(order)
        for start in range(0, self.examples, self._batch):
            yield self._rows(order[start : start + self._batch])

    def _rows(self, numbers):
        def take(each):
            if isinstance(each, tf.Tensor):
                return tf.gather(each, numbers)
            return tf.convert_to_tensor(each[numbers])

        return tf.nest.map_structure(take, self._data)
