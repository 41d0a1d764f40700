"""The layer on one rank: the results of `keras.layers.Embedding`, in all ways to train."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from hvd_p3 import shadow

_ROWS, _WIDTH = 20, 4


@pytest.fixture(autouse=True)
def _rank(one_rank):
    keras.utils.set_random_seed(0)


def _layer(optimizer=None, **settings):
    return shadow.ShardedEmbedding(
        _ROWS, _WIDTH, optimizer=optimizer or shadow.SparseSGD(0.5), **settings
    )


def _batches(count=6):
    generator = np.random.default_rng(1)
    ids = generator.integers(0, _ROWS, size=(count, 8, 3))
    ids[:, :, 1] = ids[:, :, 0]  # each id at least twice
    return ids, generator.normal(size=(count, 8, 1)).astype("float32")


def _model(embedding, **compile_arguments):
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            embedding,
            keras.layers.Flatten(),
            keras.layers.Dense(1, kernel_initializer=keras.initializers.RandomUniform(seed=3)),
        ]
    )
    model.compile(keras.optimizers.SGD(0.5), loss="mse", **compile_arguments)
    return model


def _table_of(layer):
    return layer.table.look_up(np.arange(_ROWS))


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_training_is_that_of_an_ordinary_embedding(run_eagerly):
    ids, y = _batches()
    sharded = _layer()
    model = _model(sharded, run_eagerly=run_eagerly)
    ordinary = keras.layers.Embedding(_ROWS, _WIDTH)
    reference = _model(ordinary)
    ordinary.set_weights([_table_of(sharded)])
    reference.layers[-1].set_weights(model.layers[-1].get_weights())
    for each in (model, reference):
        each.fit(
            ids.reshape(-1, 3), y.reshape(-1, 1), batch_size=8, epochs=2, shuffle=False, verbose=0
        )
    np.testing.assert_allclose(_table_of(sharded), ordinary.get_weights()[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        model.predict(ids[0], verbose=0), reference.predict(ids[0], verbose=0), rtol=1e-5
    )


def test_loops_of_your_own():
    ids = tf.constant([[1, 1], [4, 5]])
    weights = tf.Variable(tf.ones([_WIDTH]))

    def step(layer):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids) * weights)
        return tape.gradient(loss, weights)

    for run in (step, tf.function(step)):
        layer = _layer(embeddings_initializer="ones")
        assert np.all(run(layer) == 4.0)
        expected = np.ones((_ROWS, _WIDTH), "float32")
        expected[1] -= 2 * 0.5
        expected[[4, 5]] -= 0.5
        assert np.array_equal(_table_of(layer), expected)


def test_gradient_of_a_function_that_is_traced_apart():
    layer = _layer(embeddings_initializer="ones")
    weights = tf.Variable(2.0)
    forward = tf.function(lambda ids: tf.reduce_sum(layer(ids)) * weights)
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = forward(tf.constant([3, 3]))
        tape.gradient(loss, weights)
    assert np.all(_table_of(layer)[3] == 1.0 - 2 * 2 * 2.0 * 0.5)
    assert np.all(_table_of(layer)[2] == 1.0)


def test_table_is_no_variable():
    layer = _layer(name="users")
    model = _model(layer)
    model.fit(*(each[0] for each in _batches()), verbose=0)
    assert layer.variables == []
    assert [variable.path for variable in model.variables if "users" in variable.path] == []
    assert len(model.trainable_variables) == 2
    assert not any("users" in each.path for each in model.optimizer.variables)


def test_layer_that_is_not_trainable():
    ids, y = _batches()
    layer = _layer(trainable=False)
    model = _model(layer)
    before = _table_of(layer)
    model.fit(ids[0], y[0], verbose=0)
    assert np.array_equal(_table_of(layer), before)


def test_evaluation_changes_nothing():
    ids, y = _batches()
    layer = _layer()
    model = _model(layer)
    before = _table_of(layer)
    model.evaluate(ids[0], y[0], verbose=0)
    assert np.array_equal(_table_of(layer), before)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_shapes(shape):
    layer = _layer()
    ids = np.random.default_rng(0).integers(0, _ROWS, size=shape)
    found = layer(tf.constant(ids))
    assert found.shape == (*shape, _WIDTH)
    assert np.array_equal(found, _table_of(layer)[ids])
    assert layer.compute_output_shape(shape) == (*shape, _WIDTH)


def test_ids_of_other_dtypes():
    layer = _layer()
    expected = _table_of_ids(layer, [1, 19])
    for dtype in ("int32", "uint8", "float32"):
        assert np.array_equal(layer(tf.constant([1, 19], dtype)), expected)


def _table_of_ids(layer, ids):
    return layer(tf.constant(ids, tf.int64)).numpy()


def test_learning_rate_may_change_without_a_new_trace():
    layer = _layer(embeddings_initializer="zeros")
    weights = tf.Variable(1.0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant([3]))) * weights
        tape.gradient(loss, weights)

    step()
    layer.optimizer.learning_rate = 4.0
    step()
    assert np.all(_table_of(layer)[3] == -4.5)


def test_ids_out_of_range():
    layer = _layer(name="users")
    with pytest.raises(ValueError, match=r"'users' has rows 0 to 19. Received .*: 20"):
        layer(tf.constant([1, 20]))
    model = _model(layer)
    message = r"Layer 'users' has rows 0 to 19. Received ids out of this range: -3"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        model.fit(np.array([[0, 1, -3]]), np.ones((1, 1)), verbose=0)


def test_dtypes():
    ids = tf.constant([1, 2])
    assert _layer(dtype="float64")(ids).dtype == tf.float64
    layer = _layer(dtype="mixed_bfloat16")
    assert layer(ids).dtype == tf.bfloat16
    weights = tf.Variable(tf.ones([], tf.bfloat16))
    before = _table_of(layer)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ids)) * weights
    tape.gradient(loss, weights)
    assert before.dtype == np.float32
    np.testing.assert_allclose(_table_of(layer)[[1, 2]], before[[1, 2]] - 0.5, rtol=1e-6)
    for wrong in ("float16", "mixed_float16", "bfloat16"):
        with pytest.raises(ValueError, match="needs dtype float32, float64 or mixed_bfloat16"):
            _layer(dtype=wrong)


def test_threads_that_train_together_lose_no_update():
    layer = _layer(embeddings_initializer="zeros", optimizer=shadow.SparseSGD(1.0))
    weights = tf.Variable(1.0)

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids)) * weights
        tape.gradient(loss, weights)

    step(tf.constant([0]))
    threads = [
        threading.Thread(target=lambda: [step(tf.constant([1])) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.all(_table_of(layer)[1] == -200.0)


def test_configuration_makes_the_same_layer():
    layer = shadow.ShardedEmbedding(
        7,
        3,
        optimizer=shadow.RowwiseAdagrad(0.25, 0.5),
        embeddings_initializer=keras.initializers.RandomNormal(1.0, 2.0),
        partition="columns",
        seed=5,
        timeout_s=3,
        name="users",
    )
    config = layer.get_config()
    again = shadow.ShardedEmbedding.from_config(config)
    assert again.get_config() == config
    assert np.array_equal(layer(tf.range(7)), again(tf.range(7)))


def test_models_are_saved_without_the_table_which_is_saved_apart(tmp_path):
    ids, y = _batches()
    layer = _layer(name="users", optimizer=shadow.RowwiseAdagrad(0.1))
    model = _model(layer)
    model.fit(ids[0], y[0], verbose=0)
    with pytest.warns(UserWarning, match=r"'users' .* hvd_p3.shadow.save_embeddings"):
        model.save(tmp_path / "model.keras")
    shadow.save_embeddings(model, tmp_path / "embeddings")
    expected = model.predict(ids[0], verbose=0)
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert not np.array_equal(loaded.predict(ids[0], verbose=0), expected)
    shadow.load_embeddings(loaded, tmp_path / "embeddings")
    assert np.array_equal(loaded.predict(ids[0], verbose=0), expected)
    for each in (model, loaded):
        each.fit(ids[1], y[1], verbose=0)
    assert np.array_equal(_table_of(loaded.get_layer("users")), _table_of(layer))


def test_saving_what_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="There is no ShardedEmbedding"):
        shadow.save_embeddings(keras.Sequential([keras.layers.Dense(1)]), tmp_path)
    with pytest.raises(ValueError, match="layers that are built"):
        shadow.save_embeddings([_layer()], tmp_path)
    layers = [_layer(name="users"), _layer(name="users")]
    for layer in layers:
        layer.build()
    with pytest.raises(ValueError, match="Several layers have the name 'users'"):
        shadow.save_embeddings(layers, tmp_path)
    with pytest.raises(RuntimeError, match=r"could not read .* rank 0: ValueError: There is no"):
        shadow.load_embeddings(layers[:1], tmp_path)


def test_released_layer_starts_anew():
    layer = _layer(embeddings_initializer="ones")
    layer.build()
    layer.table.update(np.array([1]), np.ones((1, _WIDTH)))
    layer.release()
    assert layer.table is None
    assert np.all(layer(tf.constant([1])) == 1.0)


def test_arguments():
    sgd = shadow.SparseSGD(0.1)
    for arguments, message in (
        ({"input_dim": 0}, "input_dim must be an integer of at least 1. Received: 0"),
        ({"output_dim": 2.5}, "output_dim must be"),
        ({"optimizer": keras.optimizers.SGD(0.1)}, "optimizer must be one for embedding tables"),
        ({"partition": "tables"}, "partition must be 'rows' or 'columns'"),
        ({"seed": None}, "seed must be an integer"),
        ({"timeout_s": 0}, "timeout_s must be above 0"),
        ({"embeddings_initializer": "glorot_uniform"}, "embeddings_initializer must be one whose"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            shadow.ShardedEmbedding(
                **{"input_dim": 3, "output_dim": 3, "optimizer": sgd, **arguments}
            )
