"""Optimizers of tables against the formulas, row by row, and against Keras's own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from hvd_p3.shadow.embedding.optimizers import RowwiseAdagrad, SparseSGD, check_optimizer
from hvd_p3.shadow.embedding.shard import Shard

_ROWS, _WIDTH = 7, 4


def _updates(count=5):
    """Rows, each once, and gradients."""
    generator = np.random.default_rng(3)
    for _ in range(count):
        rows = generator.permutation(_ROWS)[: generator.integers(0, _ROWS)]
        yield rows, generator.normal(size=(len(rows), _WIDTH)).astype("float32")


def _trained(optimizer, start):
    shard = Shard(start.copy(), optimizer)
    for rows, gradients in _updates():
        statistic = optimizer.row_statistic(gradients)
        shard.update(rows, gradients, statistic, optimizer.learning_rate)
    return shard


def _start():
    return np.random.default_rng(0).normal(size=(_ROWS, _WIDTH)).astype("float32")


def test_sgd_is_that_of_keras():
    variable = keras.Variable(_start())
    optimizer = keras.optimizers.SGD(0.3)
    optimizer.build([variable])
    for rows, gradients in _updates():
        slices = tf.IndexedSlices(tf.constant(gradients), tf.constant(rows), [_ROWS, _WIDTH])
        optimizer.apply([slices], [variable])
    found = _trained(SparseSGD(0.3), _start()).values
    np.testing.assert_allclose(found, variable.numpy(), rtol=1e-6)


def test_rowwise_adagrad_by_the_formula():
    rate, initial, epsilon = 0.3, 0.1, 1e-3
    expected = _start().astype("float64")
    accumulator = np.full(_ROWS, initial)
    for rows, gradients in _updates():
        for row, gradient in zip(rows, gradients.astype("float64"), strict=True):
            accumulator[row] += sum(gradient**2) / _WIDTH
            expected[row] -= rate * gradient / (accumulator[row] ** 0.5 + epsilon)
    shard = _trained(RowwiseAdagrad(rate, initial, epsilon), _start())
    np.testing.assert_allclose(shard.values, expected, rtol=1e-5)
    np.testing.assert_allclose(shard.state["accumulator"], accumulator, rtol=1e-5)
    assert shard.values.dtype == shard.state["accumulator"].dtype == np.float32


def test_rowwise_adagrad_of_one_column_is_adagrad_of_keras():
    start = _start()[:, :1]
    variable = keras.Variable(start)
    optimizer = keras.optimizers.Adagrad(0.3, initial_accumulator_value=0.1, epsilon=1e-12)
    optimizer.build([variable])
    mine = RowwiseAdagrad(0.3, initial_accumulator=0.1, epsilon=1e-12)
    shard = Shard(start.copy(), mine)
    for rows, gradients in _updates():
        gradients = gradients[:, :1]
        slices = tf.IndexedSlices(tf.constant(gradients), tf.constant(rows), [_ROWS, 1])
        optimizer.apply([slices], [variable])
        shard.update(rows, gradients, mine.row_statistic(gradients), mine.learning_rate)
    np.testing.assert_allclose(shard.values, variable.numpy(), rtol=1e-5)


def test_rows_without_a_gradient_stay():
    for optimizer in (SparseSGD(0.1), RowwiseAdagrad(0.1)):
        shard = Shard(_start(), optimizer)
        gradients = np.ones((1, _WIDTH), "float32")
        shard.update(np.array([2]), gradients, optimizer.row_statistic(gradients), 0.1)
        others = np.arange(_ROWS) != 2
        assert np.array_equal(shard.values[others], _start()[others])
        assert np.all(shard.values[2] != _start()[2])


def test_rows_with_a_zero_gradient_stay_finite():
    optimizer = RowwiseAdagrad(0.1)
    shard = Shard(_start(), optimizer)
    gradients = np.zeros((1, _WIDTH), "float32")
    shard.update(np.array([2]), gradients, optimizer.row_statistic(gradients), 0.1)
    assert np.array_equal(shard.values, _start())


def test_configuration_makes_the_same_optimizer():
    for optimizer in (SparseSGD(0.25), RowwiseAdagrad(0.5, 0.125, 1e-4)):
        saved = keras.saving.serialize_keras_object(optimizer)
        again = check_optimizer(saved)
        assert type(again) is type(optimizer)
        assert again.get_config() == optimizer.get_config()


def test_arguments():
    for wrong in (0, -1.0, np.nan, np.inf, "0.1", None):
        with pytest.raises(ValueError, match=r"learning_rate must be .*above 0.0. Received: "):
            SparseSGD(wrong)
    with pytest.raises(ValueError, match="initial_accumulator must be"):
        RowwiseAdagrad(0.1, initial_accumulator=-1)
    with pytest.raises(ValueError, match="epsilon must be"):
        RowwiseAdagrad(0.1, epsilon=0)
    with pytest.raises(TypeError, match=r"hvd_p3.shadow.RowwiseAdagrad.*Received: .*SGD"):
        check_optimizer(keras.optimizers.SGD(0.1))
    optimizer = SparseSGD(0.1)
    with pytest.raises(ValueError, match="learning_rate"):
        optimizer.learning_rate = 0
