"""Equal numbers of batches on all ranks, for data that is not equally long everywhere.

A gradient is reduced when all ranks have computed it, so all ranks must run the same number of
training steps. Ranks agree on that number before training.
"""

import keras
import tensorflow as tf

from hvd_p3 import collectives, process

_INFINITE = "infinite"
_UNKNOWN = "unknown"


def common_steps(data, longest=False):
    """Returns the number of batches that all ranks can train with in an epoch.

    Call on all ranks.

    Args:
        data: `tf.data.Dataset` or `keras.utils.PyDataset` of batches, or int, the number of
            batches of this rank.
        longest: bool. `False` returns the number of the rank with the fewest batches, `True` that
            of the rank with the most.

    Returns:
        An int above 0, the same on all ranks.

    Raises:
        TypeError: If `data` is something else.
        ValueError: On all ranks, if the number is not known or 0 on some rank, or all are infinite
            (with `longest`, any).

    Example:

    ```python
    steps = hvd_p3.data.common_steps(len(x) // 32)
    model.fit(x[: 32 * steps], y[: 32 * steps], batch_size=32)
    ```
    """
    counts = [_count(data)]
    if process.size() > 1:
        counts = collectives.allgather_object(counts[0], name="hvd_p3.common_steps")
    for unusable, remedy in (
        (_UNKNOWN, "count them and call common_steps(count), then dataset.take(steps)"),
        (0, "give each rank at least one batch"),
    ):
        if unusable in counts:
            raise ValueError(
                "Ranks cannot agree on a number of batches; "
                f"{remedy}. Received, by rank: {', '.join(map(str, counts))}"
            )
    finite = [count for count in counts if count != _INFINITE]
    if not finite or (longest and len(finite) < len(counts)):
        raise ValueError(
            "Ranks cannot agree on a number of batches of infinite data; give model.fit "
            f"steps_per_epoch instead. Received, by rank: {', '.join(map(str, counts))}"
        )
    return max(finite) if longest else min(finite)


def equal_batches(dataset, longest=False):
    """Returns the dataset with as many batches as those of the other ranks.

    Call on all ranks, and give the result to `model.fit` without `steps_per_epoch`, so that each
    epoch starts the dataset anew. `steps_per_epoch` alone would not do: Keras goes on with what is
    left of a dataset in the next epoch, and ranks would run out of data at different steps.

    Args:
        dataset: `tf.data.Dataset` or `keras.utils.PyDataset` of batches.
        longest: bool. `False` gives each rank as many batches as the rank with the fewest has; a
            dataset that is shuffled anew in each epoch leaves out others each time. `True` gives as
            many as the rank with the most has; the others start again from their first batches.

    Returns:
        A dataset of the same kind.

    Raises:
        TypeError: If `dataset` is something else.
        ValueError: As in `common_steps`.

    Example:

    ```python
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(32)
    model.fit(hvd_p3.data.equal_batches(dataset), epochs=10)
    ```
    """
    if not isinstance(dataset, (tf.data.Dataset, keras.utils.PyDataset)):
        raise TypeError(
            "equal_batches needs a tf.data.Dataset or keras.utils.PyDataset of batches; for arrays "
            f"use hvd_p3.data.common_steps. Received: {dataset!r} of type {type(dataset)}"
        )
    steps = common_steps(dataset, longest)
    if isinstance(dataset, keras.utils.PyDataset):
        return _EqualBatches(dataset, steps)
    return (dataset.repeat() if longest else dataset).take(steps)


class _EqualBatches(keras.utils.PyDataset):
    """Another `PyDataset` with another number of batches."""

    def __init__(self, dataset, steps):
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self._dataset = dataset
        self._batches = dataset.num_batches
        self._steps = steps

    def __len__(self):
        return self._steps

    def __getitem__(self, index):
        return self._dataset[index % self._batches if self._batches else index]

    def on_epoch_begin(self):
        self._dataset.on_epoch_begin()

    def on_epoch_end(self):
        self._dataset.on_epoch_end()


def _count(data):
    """The number of batches of this rank, or `_INFINITE` or `_UNKNOWN`."""
    if isinstance(data, tf.data.Dataset):
        cardinality = int(data.cardinality())
        special = {tf.data.INFINITE_CARDINALITY: _INFINITE, tf.data.UNKNOWN_CARDINALITY: _UNKNOWN}
        return special.get(cardinality, cardinality)
    if isinstance(data, keras.utils.PyDataset):
        return _INFINITE if data.num_batches is None else data.num_batches
    if isinstance(data, int) and not isinstance(data, bool) and data >= 0:
        return data
    raise TypeError(
        "common_steps needs a tf.data.Dataset or keras.utils.PyDataset of batches, or the number "
        f"of batches as an int. Received: {data!r} of type {type(data)}"
    )
