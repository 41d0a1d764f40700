"""Ranks with unequal numbers of batches."""

import keras
import models
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd

_BATCHES = {0: 5, 1: 3}


def _dataset():
    """Batches that know their rank and number: five on rank 0, three on rank 1."""
    numbers = np.arange(_BATCHES[hvd.rank()])
    x = np.stack([np.full_like(numbers, hvd.rank()), numbers], axis=1).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(1)


def _train(dataset, epochs):
    """Trains in overlapped mode; returns the numbers of the batches of this rank."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)), loss="mse")
    model.fit(dataset, epochs=epochs, callbacks=[hvd.callbacks.P3Callback(verbose=0)], verbose=0)
    assert model.optimizer.is_overlapped()
    weights = model.get_weights()
    for mine, other in zip(weights, hvd.broadcast_object(weights), strict=True):
        same_bits(mine, other, "weights")
    return int(model.optimizer.iterations)


def check_equal_batches_of_datasets():
    assert _train(hvd.data.equal_batches(_dataset()), epochs=2) == 6
    assert hvd.data.common_steps(_BATCHES[hvd.rank()]) == 3
    assert hvd.data.common_steps(_dataset(), longest=True) == 5
    # One infinite dataset takes the length of the others.
    dataset = _dataset().repeat() if hvd.rank() == 0 else _dataset()
    assert hvd.data.common_steps(dataset) == 3


def check_longest_repeats_the_shorter_dataset():
    dataset = hvd.data.equal_batches(_dataset(), longest=True)
    numbers = [int(x[0, 1]) for x, _ in dataset]
    assert numbers == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]][hvd.rank()]
    assert _train(dataset, epochs=2) == 10


class _Batches(keras.utils.PyDataset):
    epochs_ended = 0

    def __len__(self):
        return _BATCHES[hvd.rank()]

    def __getitem__(self, index):
        return np.full((1, 2), index, "float32"), np.zeros((1, 1), "float32")

    def on_epoch_end(self):
        self.epochs_ended += 1


def check_python_datasets():
    batches = _Batches()
    assert _train(hvd.data.equal_batches(batches), epochs=2) == 6
    assert batches.epochs_ended >= 2
    longest = hvd.data.equal_batches(batches, longest=True)
    assert len(longest) == 5
    assert longest[4][0][0, 0] == [4, 1][hvd.rank()]
    assert _train(longest, epochs=1) == 5


def check_numbers_that_ranks_cannot_agree_on():
    unknown = _dataset().filter(lambda x, y: True) if hvd.rank() == 1 else _dataset()
    with raises(ValueError, "count them", "by rank: 5, unknown"):
        hvd.data.equal_batches(unknown)
    with raises(ValueError, "at least one batch", "by rank: 2, 0"):
        hvd.data.common_steps(2 if hvd.rank() == 0 else 0)
    infinite = _dataset().repeat() if hvd.rank() == 1 else _dataset()
    with raises(ValueError, "steps_per_epoch", "by rank: 5, infinite"):
        hvd.data.common_steps(infinite, longest=True)
    with raises(TypeError, "common_steps"):
        hvd.data.equal_batches(models.digits_of_this_rank(8))
