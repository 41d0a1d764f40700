"""DistributedOptimizer and P3Callback on real ranks: unusual gradients, notices, saving."""

import tempfile
import warnings

import keras
import models
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd


def _two_variables():
    return [keras.Variable(np.ones(3, "float32")), keras.Variable(np.ones((2, 2), "float32"))]


def check_gradients_are_averaged_or_summed():
    for op, factor in ((hvd.Average, 1.5), (hvd.Sum, 3.0)):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=op)
        variables = _two_variables()
        optimizer.build(variables)
        gradients = [tf.ones([3]) * (1 + hvd.rank()), tf.ones([2, 2]) * (1 + hvd.rank())]
        optimizer.apply(gradients)
        same_bits(variables[0].numpy(), np.full(3, 1 - factor, "float32"), "first variable")
        same_bits(variables[1].numpy(), np.full((2, 2), 1 - factor, "float32"), "second variable")


def check_predivided_average():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), gradient_predivide_factor=4.0)
    (variable,) = _two_variables()[:1]
    optimizer.apply_gradients([(tf.fill([3], 4.0 + 4 * hvd.rank()), variable)])
    same_bits(variable.numpy(), np.full(3, 1 - 6.0, "float32"), "variable")


def check_none_gradient_on_all_ranks():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    variables = _two_variables()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.apply_gradients(zip([None, tf.ones([2, 2])], variables, strict=True))
    assert any("Gradients do not exist" in str(each.message) for each in caught)
    same_bits(variables[0].numpy(), np.ones(3, "float32"), "variable without gradient")
    same_bits(variables[1].numpy(), np.zeros((2, 2), "float32"), "variable with gradient")
    with raises(ValueError, "No gradients"):
        optimizer.apply_gradients(zip([None, None], variables, strict=True))


def check_none_gradient_on_one_rank_is_an_error_on_all():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    variables = _two_variables()
    gradients = [tf.ones([3]) if hvd.rank() == 0 else None, tf.ones([2, 2])]
    with raises(tf.errors.FailedPreconditionError, "number of tensors", "rank 0", "rank 1"):
        optimizer.apply_gradients(zip(gradients, variables, strict=True))


def check_not_a_number_gradient_reaches_all_ranks():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    variable = keras.Variable(np.zeros(2, "float32"))
    mine = tf.constant([np.nan, 1.0]) if hvd.rank() == 0 else tf.constant([1.0, 1.0])
    optimizer.apply_gradients([(mine, variable)])
    assert np.isnan(variable.numpy()[0])
    assert variable.numpy()[1] == -1.0


def check_empty_and_scalar_variables():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    scalar, empty = keras.Variable(1.0), keras.Variable(np.zeros((0, 2), "float32"))
    optimizer.apply_gradients([(tf.constant(1.0 + hvd.rank()), scalar), (tf.zeros([0, 2]), empty)])
    assert float(scalar.numpy()) == -0.5


def _compiled(optimizer, **kwargs):
    model = models.digits_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, **kwargs)
    return model


def _fit(model, **kwargs):
    x, y = models.digits_of_this_rank(32)
    callbacks = [*kwargs.pop("callbacks", []), hvd.callbacks.P3Callback(verbose=0)]
    return model.fit(x, y, batch_size=8, callbacks=callbacks, verbose=0, **kwargs)


class OwnOptimizer(keras.optimizers.SGD):
    pass


def check_configurations_that_cannot_overlap_say_why_once_and_train():
    cases = [
        (keras.optimizers.SGD(0.1, global_clipnorm=1.0), "global_clipnorm"),
        (keras.optimizers.Adam(gradient_accumulation_steps=2), "gradient_accumulation_steps"),
        (OwnOptimizer(0.1), "OwnOptimizer is not known to update each variable by itself"),
    ]
    for optimizer, reason in cases:
        model = _compiled(hvd.DistributedOptimizer(optimizer))
        callback = hvd.callbacks.P3Callback(verbose=0)
        x, y = models.digits_of_this_rank(16)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                model.fit(x, y, batch_size=8, callbacks=[callback], verbose=0)
        notices = [str(each.message) for each in caught if "immediate mode" in str(each.message)]
        assert len(notices) == (1 if hvd.rank() == 0 else 0), notices
        assert all(reason in notice for notice in notices), notices
        assert not optimizer.is_overlapped()
        assert int(optimizer._iterations) == 4


def check_overlap_setting_turns_overlap_off():
    model = _compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), jit_compile=True)
    current = hvd.process.current()
    config = current.config
    current.config = hvd.Configuration(overlap=False)
    try:
        _fit(model)
    finally:
        current.config = config
    assert not model.optimizer.is_overlapped()
    assert not model.jit_compile


def check_report_in_logs():
    model = _compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    history = _fit(model, epochs=2).history
    megabytes = sum(v.numpy().nbytes for v in model.trainable_variables) * 4 / 1e6
    for epoch in range(2):
        assert history["p3_slices"][epoch] >= 4
        assert abs(history["p3_megabytes"][epoch] - megabytes) < 1e-9
        assert history["p3_forward_wait_s"][epoch] >= 0.0
        assert 0.0 <= history["p3_hidden_share"][epoch] <= 1.0


def check_priorities_follow_the_forward_pass():
    # The variables' order of creation is not the order in which the model uses the layers.
    last, first = keras.layers.Dense(10), keras.layers.Dense(8, activation="relu")
    last.build((None, 8))
    first.build((None, 64))
    inputs = keras.Input((8, 8, 1))
    model = keras.Model(inputs, last(first(keras.layers.Flatten()(inputs))))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    x, _ = models.digits_of_this_rank(16)
    callback = hvd.callbacks.P3Callback(verbose=0)
    model.fit(x, np.zeros((16, 10)), batch_size=8, callbacks=[callback], verbose=0)
    reducer = vars(model.optimizer)["_hvd_p3_state"].reducer
    for variable, priority in zip(model.trainable_variables, reducer.priorities, strict=True):
        expected = 0 if any(variable is each for each in first.variables) else 1
        assert priority == expected, variable.path


def check_saved_model_continues():
    model = _compiled(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)))
    _fit(model)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.keras"
        model.save(path)
        loaded = keras.models.load_model(path)
    assert type(loaded.optimizer) is keras.optimizers.Adam
    for one, other in zip(loaded.variables, model.variables, strict=True):
        same_bits(one.numpy(), other.numpy(), other.path)
    assert len(loaded.optimizer.variables) == len(model.optimizer.variables)
    for one, other in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        same_bits(one.numpy(), other.numpy(), other.path)
    # Wrapping keeps the restored state, and training goes on to the same weights.
    loaded.optimizer = hvd.DistributedOptimizer(loaded.optimizer)
    _fit(model)
    _fit(loaded)
    assert int(loaded.optimizer.iterations) == 8
    assert loaded.optimizer.is_overlapped()
    for one, other in zip(loaded.variables, model.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6)


def check_checkpoint_in_the_middle_of_an_epoch_holds_settled_weights():
    model = _compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))

    class Compare(keras.callbacks.Callback):
        compared = 0

        def on_train_batch_end(self, batch, logs=None):
            with tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/model.keras"
                model.save(path)
                loaded = keras.models.load_model(path)
            pairs = [*zip(loaded.variables, model.variables, strict=True)]
            pairs += zip(loaded.optimizer.variables, model.optimizer.variables, strict=True)
            for one, other in pairs:
                same_bits(one.numpy(), other.numpy(), other.path)
            Compare.compared += 1

    _fit(model, callbacks=[Compare()])
    assert Compare.compared == 4


def check_loss_scaling_decides_alike_on_all_ranks():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = _compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    finally:
        keras.config.set_dtype_policy(policy)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    x, y = models.digits_of_this_rank(32)
    if hvd.rank() == 0:
        x = x.copy()
        x[8] = np.inf  # the second step overflows on rank 0 only
    callback = hvd.callbacks.P3Callback(verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y, batch_size=8, callbacks=[callback], shuffle=False, verbose=0)
    steps = int(model.optimizer.iterations)
    assert hvd.allgather_object(steps) == [steps] * hvd.size()
    assert steps < 4, "no step was skipped"
    # Compiled again with the same optimizer, it is distributed still.
    inner = model.optimizer.inner_optimizer
    keras.config.set_dtype_policy("mixed_float16")
    try:
        again = _compiled(inner)
    finally:
        keras.config.set_dtype_policy(policy)
    with raises(ValueError, "LossScaleOptimizer"):
        again.train_on_batch(x[:8], y[:8])


def check_loss_scaling_around_a_distributed_optimizer_is_refused():
    scaled = keras.optimizers.LossScaleOptimizer(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    )
    with raises(ValueError, "LossScaleOptimizer", "DistributedOptimizer(keras.optimizers.Loss"):
        scaled.apply_gradients([(tf.ones([3]), _two_variables()[0])])


def _digits_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def check_all_ranks_have_the_same_trainable_weights():
    x, y = models.digits_of_this_rank(80)
    model = models.digits_model(seed=hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss=_digits_loss())
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(x, y, batch_size=8, callbacks=[start, hvd.callbacks.P3Callback(verbose=0)], verbose=0)
    weights = [variable.numpy() for variable in model.trainable_variables]
    for other in hvd.allgather_object(weights):
        for index, (one, two) in enumerate(zip(weights, other, strict=True)):
            same_bits(one, two, f"variable {index}")


def check_xla_is_refused_with_a_remedy():
    x, y = models.digits_of_this_rank(8)
    model = _compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), jit_compile=True)
    with raises(ValueError, "XLA", "jit_compile=False"):
        model.train_on_batch(x, y)
    with raises(ValueError, "XLA", "jit_compile=False"):
        tf.function(lambda: hvd.ops.all_reduce(tf.ones(2), name="jit"), jit_compile=True)()
    _fit(model)  # P3Callback switches it off


def check_optimizer_that_only_one_rank_makes_does_no_harm():
    if hvd.rank() == 0:
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    x, y = models.digits_of_this_rank(16)
    model = models.digits_model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss=_digits_loss())
    model.fit(x, y, batch_size=8, callbacks=[hvd.callbacks.P3Callback(verbose=0)], verbose=0)
