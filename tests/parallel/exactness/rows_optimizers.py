"""The exactness table: optimizers, their options, schedules and changes while they train."""

import unittest

import keras
import numpy as np
import table
import tensorflow as tf
from keras import layers, optimizers
from table import run_row as run_check  # noqa: F401

PREFIX = "row_"


def _model():
    return keras.Sequential(
        [keras.Input((8,)), layers.Dense(6, activation="tanh"), layers.Dense(4)]
    )


def _train(run, optimizer):
    model = _model()
    run.compile(model, optimizer)
    run.train(model, table.features(), table.targets())


def _of_newer_keras(name):
    if not hasattr(optimizers, name):
        raise unittest.SkipTest(f"Keras {keras.version()} has no {name}")
    return getattr(optimizers, name)


def row_sgd(run):
    _train(run, optimizers.SGD(0.1, weight_decay=0.01))


def row_nesterov(run):
    _train(run, optimizers.SGD(0.1, momentum=0.9, nesterov=True))


def row_adam(run):
    _train(run, optimizers.Adam(0.01, amsgrad=True))


def row_adamw_with_excluded_variables(run):
    optimizer = optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    _train(run, optimizer)


def row_rmsprop(run):
    _train(run, optimizers.RMSprop(0.01, momentum=0.9, centered=True))


def row_adagrad(run):
    _train(run, optimizers.Adagrad(0.1))


def row_adadelta(run):
    _train(run, optimizers.Adadelta(1.0))


def row_adamax(run):
    _train(run, optimizers.Adamax(0.01))


def row_nadam(run):
    _train(run, optimizers.Nadam(0.01))


def row_ftrl(run):
    _train(run, optimizers.Ftrl(0.1, l1_regularization_strength=0.001))


def row_lion(run):
    _train(run, optimizers.Lion(0.01))


def row_lamb(run):
    _train(run, optimizers.Lamb(0.01))


def row_adafactor(run):
    _train(run, optimizers.Adafactor(0.01))


def row_muon(run):
    _train(run, _of_newer_keras("Muon")(0.01, exclude_layers=["dense_1"]))


def row_schedule_free_adamw(run):
    _train(run, _of_newer_keras("ScheduleFreeAdamW")(0.01))


def row_clip_by_norm(run):
    _train(run, optimizers.Adam(0.01, clipnorm=0.05))


def row_clip_by_value(run):
    _train(run, optimizers.SGD(0.1, clipvalue=0.02))


def row_clip_by_global_norm(run):
    _train(run, optimizers.SGD(0.1, global_clipnorm=0.05))


def row_moving_average(run):
    _train(run, optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3))


class Unused(layers.Layer):
    """Has a weight that gets no gradient."""

    def build(self, shape):
        self.unused = self.add_weight(shape=(3,), initializer="ones")

    def call(self, inputs):
        return inputs


def row_moving_average_of_variables_without_gradient(run):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(6), Unused(), layers.Dense(4)])
    run.compile(model, optimizers.Nadam(0.01, use_ema=True, ema_momentum=0.5))
    run.train(model, table.features(), table.targets())


def row_gradient_accumulation(run):
    _train(run, optimizers.SGD(0.1, gradient_accumulation_steps=2))


def row_fixed_loss_scale(run):
    _train(run, optimizers.SGD(0.1, loss_scale_factor=64.0))


def row_schedule(run):
    schedule = optimizers.schedules.CosineDecay(0.1, 6, warmup_target=0.3, warmup_steps=2)
    _train(run, optimizers.SGD(schedule, momentum=0.9, weight_decay=0.01))


def row_schedule_with_adafactor(run):
    _train(run, optimizers.Adafactor(optimizers.schedules.ExponentialDecay(0.5, 2, 0.5)))


def row_learning_rate_of_a_function(run):
    _train(run, optimizers.Adam(lambda: 0.02))


class ChangeRate(keras.callbacks.Callback):
    """Changes the learning rate at each batch, before and after it."""

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.1 / (1 + batch % 3)

    def on_train_batch_end(self, batch, logs=None):
        self.model.optimizer.learning_rate = 100.0


def _fit_with(run, callback, optimizer):
    model = _model()
    run.compile(model, optimizer)
    fit = run.fit
    run.fit = lambda *data, callbacks=(): fit(*data, callbacks=[callback, *callbacks], epochs=2)
    run.train(model, table.features(), table.targets())


def row_learning_rate_changed_at_each_batch(run):
    _fit_with(run, ChangeRate(), optimizers.AdamW(0.01, weight_decay=0.1))


def row_learning_rate_changed_at_each_epoch(run):
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (2 + epoch))
    _fit_with(run, scheduler, optimizers.SGD(0.1, momentum=0.9))


class ChangeMomentum(keras.callbacks.Callback):
    """Changes what is a constant of the traced step: it has no effect until the next trace."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.optimizer.momentum = 0.1
        self.model.optimizer.weight_decay = 0.5


def row_hyper_parameters_changed_at_each_batch(run):
    _fit_with(run, ChangeMomentum(), optimizers.SGD(0.1, momentum=0.9, weight_decay=0.01))


def row_hyper_parameters_changed_before_compiling_again(run):
    model = _model()
    optimizer = run.distribute(optimizers.SGD(0.1, momentum=0.9))
    run.watch(model)
    x, y = table.features(), table.targets()
    for momentum, rate in ((0.9, 0.1), (0.5, 0.1), (0.5, lambda: 0.03)):
        optimizer.momentum = momentum
        optimizer.learning_rate = rate
        model.compile(optimizer, loss="mse")
        run.train(model, x, y)


def row_hyper_parameter_changed_and_traced_anew(run):
    model = _model()
    run.compile(model, optimizers.SGD(0.1, momentum=0.9))
    run.fit(model, table.features(2), table.targets(2))
    model.optimizer.momentum = 0.5
    for rows in (3, 5, 3):  # train_on_batch traces for each shape
        model.train_on_batch(table.features()[:rows], table.targets()[:rows])
    run.record("traced anew")


class ReadAndChange(keras.callbacks.Callback):
    """Changes an option of the optimizer to numpy numbers at each batch, and reads weights."""

    def __init__(self, **options):
        super().__init__()
        self._options = options

    def on_train_batch_end(self, batch, logs=None):
        for name, value in self._options.items():
            setattr(self.model.optimizer, name, np.float64(value))
        if batch % 2:
            self.model.get_weights()


def row_numpy_hyper_parameters_changed_at_each_batch(run):
    optimizer = optimizers.SGD(0.1, momentum=np.float64(0.9), weight_decay=np.float64(0.01))
    _fit_with(run, ReadAndChange(momentum=0.1, weight_decay=0.5), optimizer)


def row_hyper_parameter_in_a_variable(run):
    optimizer = optimizers.SGD(0.1)
    optimizer.weight_decay = tf.Variable(0.01)
    _train(run, optimizer)


def row_weight_decay_excluded_in_training(run):
    class Exclude(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.optimizer.exclude_from_weight_decay(var_names=["kernel"])
            if batch % 2:
                self.model.get_weights()

    _fit_with(run, Exclude(), optimizers.AdamW(0.01, weight_decay=0.1))


def row_functions_of_the_user_after_compiling_with_another_momentum(run):
    model = _model()
    optimizer = run.distribute(optimizers.SGD(0.1, momentum=0.9))
    run.watch(model)
    x, y = table.features(), table.targets()
    outputs = tf.function(lambda: model(x[:4]), autograph=False)
    seen = []
    for momentum in (0.9, 0.5):
        optimizer.momentum = momentum
        model.compile(optimizer, loss="mse")
        run.fit(model, x, y, callbacks=[table.AtBatch(2, run, lambda: seen.append(outputs()))])
    run.record("12 steps", *seen)


class PlainSGD(keras.optimizers.SGD):
    """A user's optimizer."""


def row_optimizer_of_the_user(run):
    _train(run, PlainSGD(0.1))


def row_loss_scaling_with_overflow(run):
    """The first steps overflow on one rank alone, and must be skipped on all."""
    model = _model()
    scaled = optimizers.LossScaleOptimizer(optimizers.Adam(0.01), initial_scale=2.0**110)

    def loss(y, predicted):
        rank_dependent = tf.where(y[0, 0] > 0, 2.0**20, 1.0)
        return tf.reduce_mean(tf.square(y - predicted)) * rank_dependent

    run.compile(model, scaled, loss=loss)
    x, y = table.features(), table.targets()
    y[:, 0] = 1 - 2 * (table.hvd.rank() % 2)
    run.train(model, x, y)
    assert float(scaled.dynamic_scale) < 2.0**110
