"""Several training threads on the same variables."""

import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from hvd_p3.shadow import fit


class _Sum(keras.Model):
    """A model whose training step adds 1 to its weight for each example."""

    def __init__(self, pause_s=0.0):
        super().__init__()
        self.total = self.add_weight(shape=(), initializer="zeros")
        self.pause_s = pause_s
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self.built = True

    def call(self, inputs):
        return inputs

    def train_step(self, data):
        def pause():
            # Python code in the step is only here to see whether steps overlap.
            with self._lock:
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
            time.sleep(self.pause_s)
            with self._lock:
                self._at_once -= 1

        tf.numpy_function(pause, [], [])
        # Of TensorFlow: that of Keras reads, adds and assigns, and loses what comes in between.
        self.total.value.assign_add(tf.cast(tf.shape(data)[0], "float32"))
        return {}


def _compiled(model):
    model.compile("sgd", "mse", jit_compile=False)
    return model


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_share_the_data(workers):
    model = _compiled(_Sum())
    fit(model, tf.data.Dataset.range(60).batch(4), workers=workers, epochs=2)
    assert model.total.numpy() == 120


def test_each_worker_has_an_iterator_of_its_own():
    model = _compiled(_Sum())
    taken = []

    def data(worker):
        for _ in range(5):
            taken.append((worker, threading.get_ident()))
            yield np.zeros(worker + 1)

    fit(model, data, workers=2)
    assert model.total.numpy() == 5 * 1 + 5 * 2
    assert len(set(taken)) == 2, "one thread for each worker"


def test_steps_run_at_the_same_time():
    model = _compiled(_Sum(pause_s=0.02))
    fit(model, tf.data.Dataset.range(24).batch(1), workers=3)
    assert model.most_at_once > 1
    assert model.total.numpy() == 24


def test_steps_per_epoch_go_on_in_the_data():
    model = _compiled(_Sum())
    batches = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            batches.append(batch)

    history = fit(
        model,
        tf.data.Dataset.range(100).batch(1).repeat(),
        workers=2,
        epochs=3,
        steps_per_epoch=4,
        callbacks=[Count()],
    )
    assert batches == 3 * list(range(8))
    assert history.epoch == [0, 1, 2]


def test_a_regression_is_learned():
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 3)).astype("float32")
    y = x @ np.array([[1.0], [-2.0], [0.5]], "float32")
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(20)
    history = fit(model, data, workers=2, epochs=10)
    assert history.history["loss"][-1] < 1e-4 < history.history["loss"][0]
    assert "mae" in history.history


def test_stop_training_stops_all_workers():
    model = _compiled(_Sum())

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch >= 3

    fit(model, tf.data.Dataset.range(1000).batch(1), workers=2, epochs=3, callbacks=[Stop()])
    assert 4 <= model.total.numpy() <= 6


def test_the_error_of_a_worker_ends_training():
    model = _compiled(_Sum())

    def data(worker):
        yield np.zeros(1)
        if worker == 1:
            raise ArithmeticError("no more data")
        while True:
            yield np.zeros(1)

    with pytest.raises(ArithmeticError, match="no more data"):
        fit(model, data, workers=2)


@pytest.mark.parametrize(
    ("compiled", "arguments", "message"),
    [
        (None, {}, "compiled model"),
        ({"jit_compile": True}, {}, "jit_compile=False"),
        ({"run_eagerly": True}, {}, "run_eagerly=False"),
        ({"jit_compile": False}, {"workers": 0}, "workers=0"),
        ({"jit_compile": False}, {"epochs": 1.5}, "epochs=1.5"),
        ({"jit_compile": False}, {"steps_per_epoch": 0}, "steps_per_epoch=0"),
    ],
)
def test_bad_arguments(compiled, arguments, message):
    model = _Sum()
    if compiled is not None:
        model.compile("sgd", "mse", **compiled)
    with pytest.raises(ValueError, match=message):
        fit(model, tf.data.Dataset.range(3), **arguments)
