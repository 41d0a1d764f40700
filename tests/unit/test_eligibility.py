"""Why an optimizer is not overlapped."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import hvd_p3
from hvd_p3.overlap import eligibility


def _reason(optimizer, variables=None):
    optimizer = hvd_p3.DistributedOptimizer(optimizer)
    if variables is None:
        variables = [keras.Variable(np.ones((2, 2), "float32")), keras.Variable(1.0)]
    optimizer.build(variables)
    return optimizer.turn_overlap_on()


@pytest.mark.parametrize(
    "name", sorted(each.__name__ for each in eligibility._SEPARABLE if each.__name__ != "Muon")
)
def test_optimizers_of_keras_are_overlapped(gated_engine, name):
    assert _reason(getattr(keras.optimizers, name)(0.1)) is None
    assert _reason(getattr(keras.optimizers, name)(0.1, use_ema=True)) is None


def test_plain_tensorflow_variables_are_overlapped(gated_engine):
    assert _reason(keras.optimizers.SGD(0.1), [tf.Variable(1.0)]) is None


def test_variable_that_cannot_be_guarded(gated_engine):
    variable = keras.Variable(1.0, name="mirrored")
    variable._value = object()
    reason = eligibility.reason_for_immediate_mode
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([])
    optimizer._trainable_variables = [variable]
    assert reason(optimizer, keras.optimizers.SGD) == (
        "variable 'mirrored' is a object, which cannot be guarded"
    )


def test_variable_that_is_overwritten_with_its_gradient(gated_engine):
    variable = keras.Variable(1.0, name="scale")
    variable.overwrite_with_gradient = True
    reason = _reason(keras.optimizers.SGD(0.1), [variable])
    assert reason == "variable 'scale' is overwritten with its gradient"


def test_state_of_no_single_variable(gated_engine):
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1))
    optimizer.build([keras.Variable(1.0)])
    optimizer.norm_of_all = optimizer.add_variable(shape=(), name="norm_of_all")
    assert optimizer.turn_overlap_on() == "this SGD keeps state that belongs to no single variable"


def test_method_that_another_keras_replaces(gated_engine, monkeypatch):
    monkeypatch.setattr(
        keras.optimizers.SGD, "_clip_gradients", lambda self, grads: grads, raising=False
    )
    assert _reason(keras.optimizers.SGD(0.1)) == "SGD replaces Keras's _clip_gradients"
