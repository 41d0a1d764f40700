"""Batch normalisation with the statistics of all ranks' batches."""

import itertools

import horovod.tensorflow as horovod
import keras
import tensorflow as tf
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from hvd_p3 import ops, process

# Numbers layers in the order in which they are first used in training, which is the same on all
# ranks, as their names need not be.
_counter = itertools.count()


@keras.saving.register_keras_serializable(package="hvd_p3")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` with mean and variance over the batches of all ranks.

    For batches that are too small on each rank for good statistics. In each training step, each
    layer reduces a vector of two numbers for each channel in the forward pass, and another in the
    backward pass, and all ranks wait for them. Batches may differ in size between ranks.

    Args:
        fused: Must be `False`; for programs that were written for Horovod.
        **kwargs: Arguments of `keras.layers.BatchNormalization`.

    Raises:
        ValueError: If `fused` is not `False`; in training, if hvd_p3 is not initialised.

    Example:

    ```python
    model = keras.Sequential([
        keras.layers.Conv2D(32, 3, use_bias=False),
        hvd_p3.SyncBatchNormalization(),
        keras.layers.ReLU(),
    ])
    ```
    """

    def __init__(self, fused=False, **kwargs):
        if fused is not False:
            raise ValueError(
                f"SyncBatchNormalization has no fused kind; leave `fused` out. Received: {fused!r}"
            )
        super().__init__(**kwargs)
        self._number = None

    def _moments(self, inputs, mask):
        mean, variance = super()._moments(inputs, mask)
        if in_symbolic_scope() or process.size() == 1:
            return mean, variance
        if self._number is None:
            self._number = next(_counter)
        if mask is None:
            count = tf.size(inputs) / tf.size(mean)
        else:
            count = tf.math.count_nonzero(mask)
        count = tf.cast(count, mean.dtype)
        sums = tf.concat(
            [count * mean, count * (variance + tf.square(mean)), tf.reshape(count, [1])], axis=0
        )
        channels = mean.shape[0]
        sums = ops.all_reduce(
            tf.ensure_shape(sums, [2 * channels + 1]),
            name=f"sync_batch_normalization.{self._number}",
            op=horovod.Sum,
        )
        mean, mean_of_squares = tf.split(tf.math.divide_no_nan(sums[:-1], sums[-1]), 2)
        # Rounding can make the difference negative.
        return mean, tf.maximum(mean_of_squares - tf.square(mean), 0.0)
