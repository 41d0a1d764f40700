"""LearningRateScheduleCallback and LearningRateWarmupCallback on one rank, in each mode."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from momentum_sgd import BATCH_SIZE, STEPS_PER_EPOCH, MomentumSGD, data, model

import hvd_p3
from hvd_p3 import momentum_correction, process

_MODES = ["one rank", "immediate", "overlapped", "eager"]


@pytest.fixture
def fit(gated_engine):
    """A function that trains a model for some epochs in the mode that the test is for."""

    def fit_in(mode, linear, epochs, callbacks, **arguments):
        if mode == "one rank":
            process._process.reduction = process.NOT_NEEDED
        if mode == "overlapped":
            callbacks = [hvd_p3.callbacks.P3Callback(verbose=0), *callbacks]
        defaults = {"batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0}
        x, y = arguments.pop("data", data(0))
        arguments = {**defaults, **arguments}
        linear.fit(x, y, epochs=epochs, callbacks=callbacks, **arguments)
        assert linear.optimizer.is_overlapped() == (mode == "overlapped")
        return linear.get_weights()[0]

    return fit_in


def _rate(epoch):
    return 0.02 * (1 + epoch) if epoch < 1.5 else 0.01


def _distributed(optimizer, mode="overlapped"):
    return model(
        hvd_p3.DistributedOptimizer(optimizer), jit_compile=False, run_eagerly=mode == "eager"
    )


@pytest.mark.parametrize(
    ("mode", "nesterov"),
    [*((mode, False) for mode in _MODES), ("immediate", True), ("overlapped", True)],
)
def test_velocity_follows_the_learning_rate(fit, mode, nesterov):
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9, nesterov=nesterov)
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(1.0, _rate, staircase=False)
    weights = fit(mode, _distributed(optimizer, mode), 3, [schedule])
    expected = MomentumSGD([data(0)], 0.9, 0.05, nesterov=nesterov).train(3, _rate)
    uncorrected = MomentumSGD([data(0)], 0.9, 0.05, corrects=False, nesterov=nesterov)
    assert np.abs(expected - uncorrected.train(3, _rate)).max() > 1e-2
    np.testing.assert_allclose(weights, expected, atol=2e-6)
    assert optimizer.momentum == 0.9


@pytest.mark.parametrize("mode", ["immediate", "overlapped"])
def test_without_correction(fit, mode):
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(
        1.0, _rate, staircase=False, momentum_correction=False
    )
    weights = fit(mode, _distributed(optimizer, mode), 3, [schedule])
    expected = MomentumSGD([data(0)], 0.9, 0.05, corrects=False).train(3, _rate)
    np.testing.assert_allclose(weights, expected, atol=2e-6)


@pytest.mark.parametrize("mode", ["immediate", "overlapped"])
def test_staircase_and_parts_of_a_schedule(fit, mode):
    callbacks = [
        hvd_p3.callbacks.LearningRateScheduleCallback(0.04, 0.5, start_epoch=1, end_epoch=3),
        hvd_p3.callbacks.LearningRateScheduleCallback(0.04, lambda epoch: 2.0, start_epoch=3),
    ]
    optimizer = keras.optimizers.SGD(0.04, momentum=0.9)
    linear = _distributed(optimizer, mode)
    weights = fit(mode, linear, 4, callbacks)
    rates = [0.04, 0.04, 0.02, 0.08]
    expected = MomentumSGD([data(0)], 0.9, 0.04).train(4, lambda epoch: rates[int(epoch)])
    np.testing.assert_allclose(weights, expected, atol=2e-6)
    np.testing.assert_allclose(linear.history.history["lr"], rates, rtol=1e-6)


@pytest.mark.parametrize("mode", ["immediate", "overlapped"])
def test_training_that_was_traced_without_the_callback_goes_on_with_it(fit, mode):
    """The step is traced anew, with updates of the earlier trace pending or settled."""
    linear = _distributed(keras.optimizers.SGD(0.05, momentum=0.9), mode)
    fit(mode, linear, 1, [])
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(1.0, _rate, staircase=False)
    weights = fit(mode, linear, 2, [schedule])
    expected = MomentumSGD([data(0)], 0.9, 0.05)
    expected.train(1, lambda epoch: 0.05)
    np.testing.assert_allclose(weights, expected.train(2, _rate), atol=2e-6)
    # And without it again: nothing is left to correct.
    rate = float(linear.optimizer.learning_rate)
    weights = fit(mode, linear, 1, [])
    np.testing.assert_allclose(weights, expected.train(1, lambda epoch: rate), atol=2e-6)


def test_callback_in_front_of_p3_callback(gated_engine):
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    linear = _distributed(optimizer)
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(1.0, _rate, staircase=False)
    callbacks = [schedule, hvd_p3.callbacks.P3Callback(verbose=0)]
    for epochs in (1, 2):  # the second fit has a new callback before overlap is looked at again
        linear.fit(
            *data(0),
            batch_size=BATCH_SIZE,
            shuffle=False,
            verbose=0,
            epochs=epochs,
            callbacks=callbacks,
        )
    assert optimizer.is_overlapped()
    expected = MomentumSGD([data(0)], 0.9, 0.05)
    expected.train(1, _rate)
    np.testing.assert_allclose(linear.get_weights()[0], expected.train(2, _rate), atol=2e-6)


@pytest.mark.parametrize("mode", ["immediate", "overlapped"])
def test_data_of_unknown_length(fit, mode):
    """Keras starts one more step at the end of each epoch, which has no data."""
    linear = _distributed(keras.optimizers.SGD(0.05, momentum=0.9))
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(
        1.0, _rate, staircase=False, steps_per_epoch=STEPS_PER_EPOCH
    )
    dataset = tf.data.Dataset.from_tensor_slices(data(0)).batch(BATCH_SIZE)
    dataset = dataset.filter(lambda x, y: True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that data ran out
        weights = fit(mode, linear, 3, [schedule], data=(dataset, None), batch_size=None)
    expected = MomentumSGD([data(0)], 0.9, 0.05).train(3, _rate)
    np.testing.assert_allclose(weights, expected, atol=2e-6)


def test_accumulated_gradients_get_the_product_of_all_corrections(fit):
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=2)
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(1.0, _rate, staircase=False)
    weights = fit("immediate", _distributed(optimizer), 2, [schedule])
    expected = MomentumSGD([data(0)], 0.9, 0.05)
    for epoch in range(2):
        for step in (0, 2):
            mean = (expected.gradient(step) + expected.gradient(step + 1)) / 2
            expected.step(mean, _rate(epoch + (step + 1) / STEPS_PER_EPOCH))
    np.testing.assert_allclose(weights, expected.weights, atol=2e-6)


@pytest.mark.parametrize("mode", ["immediate", "overlapped"])
def test_momentum_of_rmsprop(fit, mode):
    optimizer = keras.optimizers.RMSprop(0.05, rho=0.8, momentum=0.9, epsilon=1e-3)
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(1.0, _rate, staircase=False)
    weights = fit(mode, _distributed(optimizer, mode), 2, [schedule])
    reference = MomentumSGD([data(0)], 0.9, 0.05)
    squares, momentum, before = 0.0, 0.0, 0.05
    for step in range(2 * STEPS_PER_EPOCH):
        rate = _rate(step / STEPS_PER_EPOCH)
        gradient = reference.gradient(step % STEPS_PER_EPOCH)
        squares = 0.8 * squares + 0.2 * gradient**2
        momentum = 0.9 * rate / before * momentum + rate * gradient / np.sqrt(squares + 1e-3)
        reference.weights = reference.weights - momentum
        before = rate
    np.testing.assert_allclose(weights, reference.weights, atol=1e-5)


def test_variables_that_have_no_gradient_in_a_step(gated_engine):
    """Their velocity is corrected too, and once, when an optimizer is applied to parts."""
    variables = [keras.Variable(np.ones(2, "float32")) for _ in range(2)]
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.5, momentum=0.5))
    optimizer.build(variables)
    momentum_correction.enable(optimizer)
    assert optimizer.turn_overlap_on() is None

    @tf.function
    def apply_to(index):
        variable = variables[index]
        optimizer.apply([tf.ones_like(variable.value)], [variable])

    for index in (0, 1):
        apply_to(index)
    momentum_correction.request(optimizer, 4.0)
    apply_to(0)  # corrects the velocities of both
    apply_to(1)
    for velocity in optimizer.momentums:
        np.testing.assert_array_equal(velocity.numpy(), np.full(2, 0.5 * 4 * -0.5 - 0.5, "float32"))


def test_model_with_a_correcting_optimizer_is_saved_as_any_other(one_rank, tmp_path):
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    linear = model(hvd_p3.DistributedOptimizer(optimizer))
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(1.0, _rate, staircase=False)
    linear.fit(*data(0), batch_size=BATCH_SIZE, callbacks=[schedule], verbose=0)
    names = [variable.path for variable in optimizer.variables]
    assert len(names) == 3, names  # iterations, learning rate, velocity
    linear.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is keras.optimizers.SGD
    assert loaded.optimizer.get_config() == optimizer.get_config()
    again = type(optimizer).from_config(optimizer.get_config())
    again.apply([tf.ones(1)], [keras.Variable(np.ones(1, "float32"))])


def test_adam_has_nothing_to_correct(one_rank):
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.Adam(0.05))
    linear = model(optimizer)
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(0.1, 0.5)
    linear.fit(*data(0), epochs=2, callbacks=[schedule], verbose=0)
    assert not momentum_correction.is_enabled(optimizer)
    assert float(optimizer.learning_rate) == np.float32(0.05)


def test_rate_of_zero_leaves_no_scale_to_correct_by(fit):
    rates = [0.0, 0.05]
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: rates[epoch])
    weights = fit("immediate", _distributed(optimizer), 2, [schedule])
    expected = MomentumSGD([data(0)], 0.9, 0.05).train(1, lambda epoch: 0.05)
    np.testing.assert_allclose(weights, expected, atol=2e-6)


def test_warm_up_on_one_rank_keeps_the_rate_and_says_so(one_rank, capsys):
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    warm_up = hvd_p3.callbacks.LearningRateWarmupCallback(0.05, warmup_epochs=2, verbose=1)
    linear = model(hvd_p3.DistributedOptimizer(optimizer))
    linear.fit(*data(0), epochs=3, callbacks=[warm_up], verbose=0)
    np.testing.assert_allclose(linear.history.history["lr"], [0.05] * 3, rtol=1e-6)
    output = capsys.readouterr().out
    assert output.count("the learning rate has reached 0.05 at the end of warm-up") == 1
    assert "Epoch 2:" in output


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_warm_up_ends_with_the_whole_rate(fit, monkeypatch, steps_per_execution):
    monkeypatch.setattr(process, "size", lambda: 4)
    linear = _distributed(keras.optimizers.SGD(0.05, momentum=0.9))
    linear.steps_per_execution = steps_per_execution
    warm_up = hvd_p3.callbacks.LearningRateWarmupCallback(0.05, warmup_epochs=1)
    fit("immediate", linear, 2, [warm_up])
    np.testing.assert_allclose(linear.history.history["lr"], [0.05, 0.05], rtol=1e-6)


def test_refusals(one_rank):
    schedule = hvd_p3.callbacks.LearningRateScheduleCallback
    with pytest.raises(ValueError, match="needs initial_lr"):
        schedule(None, 0.5)
    with pytest.raises(ValueError, match="warmup_epochs must be above 0"):
        hvd_p3.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=0)
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    linear = model(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(decay)))
    with pytest.raises(ValueError, match="learning_rate is a number"):
        linear.fit(*data(0), callbacks=[schedule(0.1, 0.5)], verbose=0)
    linear = model(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    dataset = tf.data.Dataset.from_tensor_slices(data(0)).batch(2).filter(lambda x, y: True)
    with pytest.raises(ValueError, match="steps_per_epoch"):
        linear.fit(dataset, callbacks=[schedule(0.1, 0.5, staircase=False)], verbose=0)
