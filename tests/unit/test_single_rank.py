"""The API on one rank, without the engine in the way of training."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import hvd_p3

_ROOT = Path(__file__).parents[2]


def test_not_initialised():
    for function in (hvd_p3.rank, hvd_p3.size, hvd_p3.local_rank, hvd_p3.statistics):
        with pytest.raises(ValueError, match=r"hvd_p3.init\(\)"):
            function()
    with pytest.raises(ValueError, match=r"hvd_p3.init\(\)"):
        hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match=r"hvd_p3.init\(\)"):
        hvd_p3.allreduce(tf.constant(1.0))
    assert not hvd_p3.is_initialized()


def test_optimizer_keeps_its_class_state_and_configuration(one_rank):
    plain = keras.optimizers.Adam(0.25, beta_1=0.8, weight_decay=0.1)
    config = plain.get_config()
    optimizer = hvd_p3.DistributedOptimizer(plain)
    assert optimizer is plain
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert optimizer.get_config() == config
    optimizer.learning_rate = 0.5
    assert float(optimizer.learning_rate) == 0.5
    again = type(optimizer).from_config(config)
    assert isinstance(again, keras.optimizers.Adam)
    assert again.beta_1 == 0.8
    serialized = keras.saving.serialize_keras_object(optimizer)
    restored = keras.saving.deserialize_keras_object(serialized)
    assert type(restored) is keras.optimizers.Adam


def test_optimizer_refuses_what_makes_no_sense(one_rank):
    with pytest.raises(TypeError, match="instance of a Keras 3 optimizer"):
        hvd_p3.DistributedOptimizer("sgd")
    with pytest.raises(TypeError, match="unknown_argument"):
        hvd_p3.DistributedOptimizer(keras.optimizers.SGD(), unknown_argument=1)
    with pytest.raises(ValueError, match="op must be"):
        hvd_p3.DistributedOptimizer(keras.optimizers.SGD(), op=hvd_p3.Max)
    with pytest.raises(ValueError, match="above 0"):
        hvd_p3.DistributedOptimizer(keras.optimizers.SGD(), gradient_predivide_factor=0)
    with pytest.raises(ValueError, match="distributed already"):
        hvd_p3.DistributedOptimizer(hvd_p3.DistributedOptimizer(keras.optimizers.SGD()))


def test_training_gives_the_weights_of_plain_keras(one_rank):
    def train(wrap):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(wrap(keras.optimizers.Adam(0.01)), loss="mse")
        callbacks = [hvd_p3.callbacks.P3Callback()] if wrap is not _nothing else []
        x, y = np.random.default_rng(0).normal(size=(2, 32, 4)).astype("float32")
        model.fit(x, y[:, :3], callbacks=callbacks, verbose=0)
        return model.get_weights()

    for one, other in zip(train(hvd_p3.DistributedOptimizer), train(_nothing), strict=True):
        np.testing.assert_array_equal(one, other)


def _nothing(optimizer):
    return optimizer


def test_callback_needs_a_distributed_optimizer(one_rank):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    with pytest.raises(ValueError, match=r"hvd_p3\.DistributedOptimizer"):
        model.fit(np.ones((2, 1)), np.ones((2, 1)), callbacks=[hvd_p3.callbacks.P3Callback()])


def test_report_without_communication(one_rank, capsys):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    callback = hvd_p3.callbacks.P3Callback()
    history = model.fit(np.ones((2, 1)), np.ones((2, 1)), callbacks=[callback], verbose=0)
    assert history.history["p3_slices"] == [0.0]
    assert "no gradients went through" in capsys.readouterr().out


_PROGRAM = """
import hvd_p3
hvd_p3.init()
print("rank", hvd_p3.rank(), "of", hvd_p3.size())
hvd_p3.shutdown()
hvd_p3.shutdown()
try:
    hvd_p3.init()
except RuntimeError as error:
    print("refused:", error)
"""


def test_plain_python_program():
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, cwd=_ROOT
    )
    assert result.returncode == 0, result.stderr
    assert "rank 0 of 1" in result.stdout
    assert "refused: hvd_p3.init was called after hvd_p3.shutdown ended MPI" in result.stdout
