"""Overlapped and immediate mode leave the same weights (the exactness rule, docs/architecture.md).

With TensorFlow's arithmetic graph rewriting off, all bits are equal; with default options the two
graphs may be rewritten differently, and values agree within rounding.
"""

import keras
import models
import numpy as np
import tensorflow as tf
from expect import same_bits

import hvd_p3 as hvd

_STEPS = 50
_BATCH = 8
_OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(1e-3),
    "adamw": lambda: keras.optimizers.AdamW(1e-3, weight_decay=0.01),
}


def _rewrite_arithmetic(on):
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": on})


def _loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _train_digits(optimizer, overlapped, epochs=2):
    x, y = models.digits_of_this_rank(_STEPS * _BATCH // epochs)
    model = models.digits_model()
    optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, loss=_loss())
    callbacks = [hvd.callbacks.P3Callback(verbose=0)] if overlapped else []
    model.fit(x, y, batch_size=_BATCH, epochs=epochs, callbacks=callbacks, shuffle=False, verbose=0)
    assert optimizer.is_overlapped() == overlapped
    assert int(optimizer.iterations) == _STEPS
    return [variable.numpy() for variable in [*model.variables, *optimizer.variables]]


def _compare_bits(make_optimizer):
    _rewrite_arithmetic(False)
    immediate = _train_digits(make_optimizer(), overlapped=False)
    overlapped = _train_digits(make_optimizer(), overlapped=True)
    assert len(immediate) == len(overlapped)
    for index, (one, other) in enumerate(zip(overlapped, immediate, strict=True)):
        same_bits(one, other, f"variable {index}")


def check_sgd_bits():
    _compare_bits(_OPTIMIZERS["sgd"])


def check_momentum_bits():
    _compare_bits(_OPTIMIZERS["momentum"])


def check_adam_bits():
    _compare_bits(_OPTIMIZERS["adam"])


def check_adamw_bits():
    _compare_bits(_OPTIMIZERS["adamw"])


def check_default_graph_options_agree_within_rounding():
    _rewrite_arithmetic(True)
    for name in ("momentum", "adam"):
        immediate = _train_digits(_OPTIMIZERS[name](), overlapped=False)
        overlapped = _train_digits(_OPTIMIZERS[name](), overlapped=True)
        for index, (one, other) in enumerate(zip(overlapped, immediate, strict=True)):
            # Adam divides by the root of tiny squared gradients, which magnifies an ulp.
            np.testing.assert_allclose(
                one, other, rtol=1e-3, atol=1e-4, err_msg=f"{name}, variable {index}"
            )


def check_all_ranks_have_the_same_trainable_weights():
    _rewrite_arithmetic(False)
    x, y = models.digits_of_this_rank(80)
    model = models.digits_model(seed=hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss=_loss())
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(x, y, batch_size=8, callbacks=[start, hvd.callbacks.P3Callback(verbose=0)], verbose=0)
    weights = [variable.numpy() for variable in model.trainable_variables]
    for other in hvd.allgather_object(weights):
        for index, (one, two) in enumerate(zip(weights, other, strict=True)):
            same_bits(one, two, f"variable {index}")


def _train_functional(overlapped):
    x, y = models.digits_of_this_rank(160)
    model = models.functional_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.AdamW(1e-3, clipnorm=0.5))
    model.compile(optimizer, loss=[_loss(), "mse"])

    class ChangeRate(keras.callbacks.Callback):
        """Changes the learning rate at each batch, and reads weights at some."""

        seen = []

        def on_train_batch_end(self, batch, logs=None):
            optimizer.learning_rate = 1e-3 / (1 + batch % 3)
            if batch % 4 == 0:
                self.seen.append(model.get_weights())

    callbacks = [ChangeRate()]
    if overlapped:
        callbacks.append(hvd.callbacks.P3Callback(verbose=0))
    ChangeRate.seen = []
    model.fit(
        [x, x[::-1]],
        [y, y / 10.0],
        batch_size=8,
        epochs=2,
        callbacks=callbacks,
        validation_data=([x[:8], x[:8]], [y[:8], y[:8] / 10.0]),
        shuffle=False,
        verbose=0,
    )
    return [model.get_weights(), *ChangeRate.seen]


def check_functional_model_with_learning_rate_changed_at_each_batch():
    _rewrite_arithmetic(False)
    immediate = _train_functional(overlapped=False)
    overlapped = _train_functional(overlapped=True)
    assert len(immediate) == len(overlapped) > 5
    for when, (one, other) in enumerate(zip(overlapped, immediate, strict=True)):
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            same_bits(a, b, f"reading {when}, variable {index}")


def _train_program(program, overlapped):
    """Runs a program of two models that share layers, with or without P3Callback."""
    _rewrite_arithmetic(False)
    x, y = models.digits_of_this_rank(32)
    return program(x, y, [hvd.callbacks.P3Callback(verbose=0)] if overlapped else [])


def _shared_layers(x, y, callbacks):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1))
    features = keras.layers.Dense(16, activation="relu")(keras.layers.Flatten()(inputs))
    first = keras.Model(inputs, keras.layers.Dense(10)(features))
    second = keras.Model(inputs, keras.layers.Dense(1)(features))
    encoder = keras.Model(inputs, features)
    first.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss=_loss())
    second.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    seen = [encoder.predict(x, verbose=0)]
    for model, target in ((first, y), (second, y / 10.0)):
        model.fit(x, target, batch_size=8, callbacks=callbacks, shuffle=False, verbose=0)
        model.train_on_batch(x[:8], target[:8])
    for step in range(6):
        part = slice(4 * step, 4 * step + 4)
        first.train_on_batch(x[part], y[part])
        second.train_on_batch(x[part], y[part] / 10.0)
        seen.append(encoder.predict(x[:4], verbose=0))
    return [*seen, *first.get_weights(), *second.get_weights()]


def check_models_that_share_layers():
    immediate = _train_program(_shared_layers, overlapped=False)
    overlapped = _train_program(_shared_layers, overlapped=True)
    for index, (one, other) in enumerate(zip(overlapped, immediate, strict=True)):
        same_bits(one, other, f"value {index}")


def _changed_optimizer(x, y, callbacks):
    """A callable learning rate, then clipping by global norm, after overlapped mode was on."""
    model = models.digits_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
    for change in ({}, {"learning_rate": lambda: 0.003}, {"global_clipnorm": 0.05}):
        for name, value in change.items():
            setattr(optimizer, name, value)
        model.compile(optimizer, loss=_loss())
        model.fit(x, y, batch_size=8, callbacks=callbacks, shuffle=False, verbose=0)
    assert not optimizer.is_overlapped()
    return model.get_weights()


def check_optimizer_that_changes_between_fits():
    immediate = _train_program(_changed_optimizer, overlapped=False)
    overlapped = _train_program(_changed_optimizer, overlapped=True)
    for index, (one, other) in enumerate(zip(overlapped, immediate, strict=True)):
        same_bits(one, other, f"variable {index}")


def _mixed_bfloat16(x, y, callbacks):
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = models.digits_model()
    finally:
        keras.config.set_dtype_policy(policy)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss=_loss())
    model.fit(x, y, batch_size=8, callbacks=callbacks, shuffle=False, verbose=0)
    return model.get_weights()


def check_mixed_precision():
    immediate = _train_program(_mixed_bfloat16, overlapped=False)
    overlapped = _train_program(_mixed_bfloat16, overlapped=True)
    for index, (one, other) in enumerate(zip(overlapped, immediate, strict=True)):
        same_bits(one, other, f"variable {index}")


def check_optimizer_that_only_one_rank_makes_does_no_harm():
    if hvd.rank() == 0:
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    _train_digits(_OPTIMIZERS["sgd"](), overlapped=True)
