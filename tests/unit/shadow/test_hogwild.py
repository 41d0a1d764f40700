"""Several training threads on the same variables."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from hvd_p3.shadow import fit


class _Sum(keras.Model):
    """A model whose training step adds 1 to its weight for each example."""

    def __init__(self):
        super().__init__()
        self.total = self.add_weight(shape=(), initializer="zeros")
        self.built = True

    def call(self, inputs):
        return inputs

    def train_step(self, data):
        # Of TensorFlow: that of Keras reads, adds and assigns, and loses what comes in between.
        self.total.value.assign_add(tf.cast(tf.shape(data)[0], "float32"))
        return {}


class _Tally(_Sum):
    """A model whose training step counts how often each example has been trained."""

    def __init__(self, examples):
        super().__init__()
        self.counts = tf.Variable(tf.zeros([examples], tf.int32), trainable=False)

    def train_step(self, data):
        one_hot = tf.one_hot(data, self.counts.shape[0], dtype=tf.int32)
        self.counts.assign_add(tf.reduce_sum(one_hot, 0))
        return {}


class _InPairs(_Sum):
    """A model whose training step ends only when another has begun: they go in pairs.

    But for the first, which builds the model alone. Without Python in the step.
    """

    def __init__(self, pairs):
        super().__init__()
        self._parts = tf.queue.FIFOQueue(1 + 2 * pairs, [tf.int32], [[]])
        self._parts.enqueue_many([[2] + pairs * [0, 1]])
        self._met = tf.queue.FIFOQueue(pairs, [tf.int32], [[]])

    def train_step(self, data):
        def meet():
            self._met.enqueue(1)
            return 1

        part = self._parts.dequeue()
        tf.switch_case(part, [self._met.dequeue, meet, lambda: 2])
        return super().train_step(data)


def _compiled(model):
    model.compile("sgd", "mse", jit_compile=False)
    return model


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_share_the_data(workers):
    model = _compiled(_Sum())
    fit(model, tf.data.Dataset.range(60).batch(4), workers=workers, epochs=2)
    assert model.total.numpy() == 120


@pytest.mark.parametrize("workers", [1, 3])
def test_each_example_of_a_shuffled_dataset_is_trained_once_in_an_epoch(workers):
    model = _compiled(_Tally(60))
    prepared = []

    def prepare(example):
        prepared.append(int(example))
        return example

    data = tf.data.Dataset.range(60).map(
        lambda example: tf.ensure_shape(tf.numpy_function(prepare, [example], tf.int64), [])
    )
    fit(model, data.shuffle(60).batch(4), workers=workers, epochs=2)
    assert set(model.counts.numpy()) == {2}
    assert sorted(prepared) == sorted(2 * list(range(60))), "the dataset runs once for all workers"


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
    pairs = 20
    model = _compiled(_InPairs(pairs))
    data = tf.data.Dataset.range(1 + 2 * pairs).batch(1)
    training = threading.Thread(target=fit, args=(model, data, 2), daemon=True)
    training.start()
    training.join(60)
    assert not training.is_alive(), "a step has waited in vain for another to begin"
    assert model.total.numpy() == 1 + 2 * pairs


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
