"""Callbacks of Horovod's Keras API."""

import tempfile
from pathlib import Path

import keras
import momentum_sgd
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd


def check_warm_up_corrects_momentum_in_both_modes():
    shards = [momentum_sgd.data(seed) for seed in range(hvd.size())]
    x, y = shards[hvd.rank()]

    def rate_of(epoch):
        if epoch >= 2:
            return 0.06 * 0.5 ** int(epoch - 2)
        epoch += 1 / momentum_sgd.STEPS_PER_EPOCH
        return 0.06 / hvd.size() * (1 + (hvd.size() - 1) * epoch / 2)

    for overlapped in (True, False):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.06, momentum=0.9))
        model = momentum_sgd.model(optimizer, jit_compile=False)
        callbacks = [
            hvd.callbacks.LearningRateWarmupCallback(0.06, warmup_epochs=2),
            hvd.callbacks.LearningRateScheduleCallback(0.06, 0.5, start_epoch=2),
        ]
        if overlapped:
            callbacks.insert(1, hvd.callbacks.P3Callback(verbose=0))
        history = model.fit(
            x,
            y,
            batch_size=momentum_sgd.BATCH_SIZE,
            epochs=4,
            shuffle=False,
            callbacks=callbacks,
            verbose=0,
        ).history
        assert optimizer.is_overlapped() == overlapped
        reference = momentum_sgd.MomentumSGD(shards, momentum=0.9, rate=0.06)
        weights = model.get_weights()[0]
        np.testing.assert_allclose(weights, reference.train(4, rate_of), atol=2e-6)
        np.testing.assert_allclose(history["lr"], [0.045, 0.06, 0.06, 0.03], rtol=1e-6)
        uncorrected = momentum_sgd.MomentumSGD(shards, 0.9, 0.06, corrects=False)
        assert np.abs(weights - uncorrected.train(4, rate_of)).max() > 1e-3


def check_local_variables_are_not_broadcast():
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    # Ranks may even differ in the shape of a local layer.
    local = model.layers[1]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0, momentum=0.5))
    model.compile(optimizer, loss="mse", jit_compile=False)
    optimizer.build(model.trainable_variables)
    for momentum in optimizer.momentums:
        momentum.assign(tf.fill(momentum.shape, 1.0 + hvd.rank()))
    before = model.get_weights()
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(
        0, device="", local_variables=local.kernel
    )
    callback.register_local_var(local.bias)
    callback.set_model(model)
    callback.on_train_begin()
    of_rank_0 = hvd.broadcast_object(before)
    for variable, mine, root in zip(model.variables, before, of_rank_0, strict=True):
        is_local = any(variable is each for each in local.variables)
        same_bits(variable.numpy(), mine if is_local else root, variable.path)
    for variable, momentum in zip(model.trainable_variables, optimizer.momentums, strict=True):
        is_local = any(variable is each for each in local.variables)
        expected = 1.0 + (hvd.rank() if is_local else 0)
        assert np.all(momentum.numpy() == expected), variable.path
    with raises(ValueError, "Local variables must be"):
        hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=["kernel"])


class _Logs(keras.callbacks.Callback):
    """Logs a metric that ranks disagree about: the best epoch of each rank is another one."""

    values = {0: [3.0, 1.0, 2.0], 1: [3.0, 4.0, 2.0]}

    def on_epoch_end(self, epoch, logs=None):
        logs["metric"] = self.values[hvd.rank()][epoch]
        self.model.layers[0].bias.assign([float(epoch)])


def check_best_model_is_that_of_all_ranks():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    for save_weights_only, name in ((False, "best.keras"), (True, "best.weights.h5")):
        with tempfile.TemporaryDirectory() as folder:
            best = hvd.callbacks.BestModelCheckpoint(
                monitor="metric",
                mode="min",
                save_weights_only=save_weights_only,
                filepath=Path(folder, "made", name),
            )
            start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
            model.fit(
                np.ones((2, 1)),
                np.ones((2, 1)),
                epochs=3,
                callbacks=[start, hvd.callbacks.P3Callback(verbose=0), _Logs(), best],
                verbose=0,
            )
            # Means 3, 2.5 and 2: the last is the best, on all ranks, though not on rank 0.
            assert best.best == 2.0
            assert Path(folder, "made", name).exists() == (hvd.rank() == 0)
            if hvd.rank() == 0:
                other = keras.models.clone_model(model)
                if save_weights_only:
                    other.compile(keras.optimizers.SGD(0.0), loss="mse")
                    other.load_weights(Path(folder, "made", name))
                else:
                    other = keras.saving.load_model(Path(folder, "made", name))
                same_bits(other.layers[0].bias.numpy(), np.float32([2]), "bias of the best epoch")


def check_best_model_needs_the_metric_on_all_ranks():
    with raises(ValueError, "filepath='best.keras'"):
        hvd.callbacks.BestModelCheckpoint()
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss", mode="min", filepath="unused.keras")
    best.on_epoch_begin(0)
    with raises(ValueError, "same metrics on all ranks", "'loss' on ranks [1]"):
        best.on_epoch_end(0, {"loss": 1.0} if hvd.rank() == 0 else {})
    assert not Path("unused.keras").exists()
