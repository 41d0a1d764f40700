"""SyncBatchNormalization against BatchNormalization on the batch of all ranks."""

import keras
import models
import numpy as np
import tensorflow as tf

import hvd_p3 as hvd

_SIZES = [6, 10]  # examples of each rank: statistics must weigh them


def check_statistics_and_gradients_are_those_of_the_whole_batch():
    generator = np.random.default_rng(0)
    whole = [generator.normal(3.0, 2.0, size=(size, 4, 5)).astype("float32") for size in _SIZES]
    mine = whole[hvd.rank()]
    plain = keras.layers.BatchNormalization(momentum=0.5)
    layer = hvd.SyncBatchNormalization(momentum=0.5)
    for each in (plain, layer):
        each.build((None, 4, 5))
    factors = generator.normal(size=(16, 4, 5)).astype("float32")
    my_factors = factors[: _SIZES[0]] if hvd.rank() == 0 else factors[_SIZES[0] :]

    @tf.function
    def outputs_and_gradient(normalization, x, factors):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = normalization(x, training=True)
            loss = tf.reduce_sum(outputs * outputs * factors)
        return outputs, tape.gradient(loss, x)

    expected, gradient = outputs_and_gradient(plain, tf.constant(np.concatenate(whole)), factors)
    actual, my_gradient = outputs_and_gradient(layer, tf.constant(mine), my_factors)
    rows = slice(0, _SIZES[0]) if hvd.rank() == 0 else slice(_SIZES[0], None)
    np.testing.assert_allclose(actual, expected[rows], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(my_gradient, gradient[rows], rtol=1e-3, atol=1e-5)
    for one, other in zip(layer.variables, plain.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, err_msg=one.path)
    # Inference communicates nothing: one rank alone may do it.
    if hvd.rank() == 0:
        np.testing.assert_allclose(
            layer(mine), plain(mine), rtol=1e-4, atol=1e-5, err_msg="inference"
        )
    masked = tf.constant(mine), tf.constant(np.arange(4)[None] < np.full((len(mine), 1), 2))
    layer(masked[0], mask=masked[1], training=True)
    plain_mask = tf.constant(np.arange(4)[None] < np.full((16, 1), 2))
    plain(np.concatenate(whole), mask=plain_mask, training=True)
    for one, other in zip(layer.variables, plain.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, err_msg=one.path)

    # In a model, in overlapped mode, twice the same layer.
    again = hvd.SyncBatchNormalization(axis=-1)
    inputs = keras.Input((8, 8, 1))
    hidden = again(keras.layers.Dense(3)(again(keras.layers.Dense(3)(inputs))))
    model = keras.Model(inputs, keras.layers.Dense(10)(keras.layers.Flatten()(hidden)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss=loss)
    x, y = models.digits_of_this_rank(32)
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    callbacks = [start, hvd.callbacks.P3Callback(verbose=0)]
    model.fit(x, y, batch_size=8, callbacks=callbacks, verbose=0)
    assert model.optimizer.is_overlapped()
    mean = hvd.allgather_object(again.moving_mean.numpy())
    np.testing.assert_array_equal(mean[0], mean[1])
    copy = keras.layers.deserialize(keras.layers.serialize(layer))
    assert type(copy) is hvd.SyncBatchNormalization and copy.momentum == 0.5
