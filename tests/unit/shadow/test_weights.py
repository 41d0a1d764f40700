"""Reading and blending while others train."""

import contextlib
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from hvd_p3.shadow.variables import replicated_variables
from hvd_p3.shadow.weights import ReplicatedWeights


def test_the_vector_holds_all_variables():
    variables = [
        keras.Variable([[1.0, 2.0], [3.0, 4.0]]),
        tf.Variable(5.0),
        tf.Variable([6.0, 7.0], dtype=tf.float16),
        tf.Variable(np.zeros([0, 3], "float32")),
    ]
    weights = ReplicatedWeights(variables)
    vector, ticket = weights.read()
    assert weights.dtype == vector.dtype == np.float32
    assert vector.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert weights.add(np.arange(7.0), ticket)
    assert weights.read()[0].tolist() == [1, 3, 5, 7, 9, 11, 13]
    assert variables[2].numpy().tolist() == [11, 13]
    weights.assign(np.zeros(7))
    assert not weights.read()[0].any()


def test_double_precision_is_kept():
    weights = ReplicatedWeights([tf.Variable(1.0), tf.Variable(1 / 3, dtype=tf.float64)])
    vector, _ = weights.read()
    assert vector.dtype == np.float64
    assert vector[1] == 1 / 3


@pytest.mark.parametrize("jit_compile", [False, True])
def test_no_update_and_no_blend_is_lost(jit_compile):
    """A thread adds 1 to a variable many times while another blends 2: all arrive."""
    size, rounds = 500_000, 60  # so large that an operation takes a while
    variable = tf.Variable(np.zeros(size), dtype=tf.float64)
    weights = ReplicatedWeights([variable])
    gradient = tf.ones_like(variable)

    @tf.function(jit_compile=jit_compile)
    def train():
        variable.assign_sub(-1.0 * gradient)

    trained = 0
    done = threading.Event()

    def work():
        nonlocal trained
        while not done.is_set():
            train()
            trained += 1

    train()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(rounds):
            _, ticket = weights.read()
            assert weights.add(np.full(size, 2.0), ticket)
    finally:
        done.set()
        thread.join()
    assert trained > 0
    assert set(variable.numpy()) == {1 + trained + 2 * rounds}


def test_a_snapshot_of_a_variable_is_never_torn():
    variable = tf.Variable(np.zeros(100_000), dtype=tf.float64)
    weights = ReplicatedWeights([variable])
    train = tf.function(lambda: variable.assign_add(tf.ones_like(variable)))
    stop = threading.Event()

    def work():
        while not stop.is_set():
            train()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(100):
            vector, _ = weights.read()
            assert np.all(vector == vector[0])
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _sparse_training(variable, value, threads):
    """Threads that add a value to all elements, each by a sparse update of all rows, and count."""
    rows = tf.range(variable.shape[0])
    values = tf.fill(variable.shape, tf.constant(value, variable.dtype))
    train = tf.function(lambda: variable.scatter_add(tf.IndexedSlices(values, rows)))
    counts = [0] * threads
    stop = threading.Event()

    def work(number):
        while not stop.is_set():
            train()
            counts[number] += 1

    working = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in working:
        thread.start()
    try:
        yield counts
    finally:
        stop.set()
        for thread in working:
            thread.join()


def test_no_sparse_update_of_one_thread_and_no_blend_is_lost():
    variable = tf.Variable(np.zeros([2_000, 100]), dtype=tf.float64)
    weights = ReplicatedWeights([variable])
    with _sparse_training(variable, 1.0, threads=1) as counts:
        for _ in range(60):
            _, ticket = weights.read()
            assert weights.add(np.full(weights.size, 2.0), ticket)
    assert counts[0] > 0
    assert set(variable.numpy().ravel()) == {counts[0] + 2.0 * 60}


def test_sparse_updates_of_several_threads_tear_no_element():
    # Half of the bits of one multiple and half of those of another would make no multiple.
    value = np.pi
    variable = tf.Variable(np.zeros([2_000, 100]), dtype=tf.float64)
    weights = ReplicatedWeights([variable])
    with _sparse_training(variable, value, threads=2) as counts:
        for _ in range(60):
            vector, ticket = weights.read()
            multiples = vector / value
            np.testing.assert_allclose(multiples, np.round(multiples), rtol=0, atol=1e-8)
            assert weights.add(np.full(weights.size, value), ticket)
    # Updates of the same row may be lost, in each element on its own.
    multiples = np.round(variable.numpy() / value)
    assert np.all((multiples > 0) & (multiples <= sum(counts) + 60))


def test_nothing_touches_paused_variables():
    weights = ReplicatedWeights([tf.Variable([1.0])])
    _, ticket = weights.read()
    done = threading.Event()

    def blend():
        assert not weights.add(np.ones(1), ticket), "it was computed from what has been replaced"
        done.set()

    with weights.paused():
        thread = threading.Thread(target=blend)
        thread.start()
        assert not done.wait(0.1)
        weights.assign([5.0])  # the thread that pauses may
    thread.join(5)
    assert done.is_set()
    vector, ticket = weights.read()
    assert vector == [5]
    assert weights.add(np.ones(1), ticket)


def test_a_pause_that_only_reads_keeps_what_was_computed_before():
    weights = ReplicatedWeights([tf.Variable([1.0])])
    _, ticket = weights.read()
    with weights.paused(writes=False):
        pass
    assert weights.add(np.ones(1), ticket)
    assert weights.read()[0] == [2]


@pytest.mark.parametrize(
    ("variables", "error", "message"),
    [
        ([], ValueError, "no variables"),
        ([tf.Variable(1, name="count")], ValueError, "'count:0' of dtype int32"),
        ([np.zeros(3)], TypeError, "Received: array"),
    ],
)
def test_bad_variables(variables, error, message):
    with pytest.raises(error, match=message):
        ReplicatedWeights(variables)


def test_which_variables_of_a_model_are_replicated():
    class Sharded(keras.layers.Dense):
        is_sharded_over_ranks = True

    model = keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.Dense(3),
            Sharded(3),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
        ]
    )
    model.compile("adam", "mse")
    dense, _, normalization, _ = model.layers
    assert replicated_variables(model) == [*dense.variables, *normalization.variables]
