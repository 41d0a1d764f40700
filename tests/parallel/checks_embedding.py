"""Sharded embeddings on 2 ranks."""

import os
import signal
import threading
import time

import keras
import numpy as np
import tensorflow as tf
from embedding_tables import everything, settle, step_of, wait_for_all
from expect import raises, same_bits

import hvd_p3 as hvd

_ROWS, _WIDTH = 30, 4


def _layer(name, optimizer=None, **settings):
    layer = hvd.shadow.ShardedEmbedding(
        _ROWS, _WIDTH, optimizer=optimizer or hvd.shadow.SparseSGD(1.0), name=name, **settings
    )
    layer.build()
    return layer


def _model(embedding, dense_rate):
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            embedding,
            keras.layers.Flatten(),
            keras.layers.Dense(1, kernel_initializer=keras.initializers.RandomUniform(seed=3)),
        ]
    )
    model.compile(keras.optimizers.SGD(dense_rate), loss="mse")
    return model


def check_ranks_that_take_turns_train_an_ordinary_embedding():
    generator = np.random.default_rng(0)
    batches = [
        (generator.integers(0, _ROWS, size=(8, 3)), generator.normal(size=(8, 1))) for _ in range(6)
    ]
    for partition in ("rows", "columns"):
        sharded = _layer(f"turns.{partition}", hvd.shadow.SparseSGD(0.5), partition=partition)
        ordinary = keras.layers.Embedding(_ROWS, _WIDTH)
        model, reference = _model(sharded, 0.0), _model(ordinary, 0.5)
        reference.layers[-1].trainable = False
        reference.compile(keras.optimizers.SGD(0.5), loss="mse")
        ordinary.set_weights([everything(sharded)])
        wait_for_all(f"turns.{partition}")  # both have read the initial table
        for turn, (ids, y) in enumerate(batches):
            reference.train_on_batch(ids, y)
            if turn % 2 == hvd.rank():
                model.train_on_batch(ids, y)
            settle(sharded, f"turns.{partition}.{turn}")
        np.testing.assert_allclose(
            everything(sharded), ordinary.get_weights()[0], rtol=1e-5, atol=1e-6
        )


def check_duplicates_are_combined_before_they_travel():
    layer = _layer("duplicates", embeddings_initializer="zeros")
    shard, seen = layer.table.shard, []
    gather, update = shard.gather, shard.update
    shard.gather = lambda rows: seen.append(("gather", list(rows))) or gather(rows)
    shard.update = lambda rows, *others: (
        seen.append(("update", list(rows), others[0].tolist())) or update(rows, *others)
    )
    wait_for_all("duplicates.spied")
    if hvd.rank() == 0:
        step_of(layer)(tf.constant([5, 1, 5, 5], tf.int64))  # rows 2 and 0 of rank 1
    settle(layer, "duplicates.trained")
    seen = list(seen)
    wait_for_all("duplicates.seen")
    if hvd.rank() == 1:
        assert seen == [
            ("gather", [2, 0]),
            ("update", [2, 0], [[3.0] * _WIDTH, [1.0] * _WIDTH]),
        ], seen
    else:
        assert seen == [], seen
    expected = np.zeros((_ROWS, _WIDTH), "float32")
    expected[5], expected[1] = -3.0, -1.0
    same_bits(everything(layer), expected, "table")


def check_ids_out_of_range_are_an_error_of_their_rank():
    layer = _layer("range")
    step = step_of(layer)
    if hvd.rank() == 0:
        with raises(
            tf.errors.InvalidArgumentError, "Layer 'range' has rows 0 to 29", "this range: -1, 30"
        ):
            step(tf.constant([2, 30, -1], tf.int64))
        with raises(ValueError, "this range: 31"):
            layer(tf.constant([31]))
    for _ in range(5):
        step(tf.constant([0, 1, 29], tf.int64))


def check_ranks_are_not_in_step():
    layer = _layer("pace", embeddings_initializer="zeros")
    step = step_of(layer)
    steps = [100, 100]
    for busy in (0, 1):  # the other rank waits for the end of all these steps
        if hvd.rank() == busy:
            for _ in range(steps[busy]):
                step(tf.constant([0, 1, 2, 3], tf.int64))
        settle(layer, f"pace.{busy}")
    expected = np.zeros((_ROWS, _WIDTH), "float32")
    expected[:4] = -sum(steps)
    same_bits(everything(layer), expected, "table")


def check_threads_of_all_ranks_lose_no_update():
    layer = _layer("threads", embeddings_initializer="zeros")
    step = step_of(layer)
    step(tf.constant([9], tf.int64))

    def train(seed):
        generator = np.random.default_rng([hvd.rank(), seed])
        for _ in range(40):
            step(tf.constant(generator.integers(0, 8, size=6)))

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle(layer, "threads")
    assert everything(layer)[:8].sum() == -2 * 3 * 40 * 6 * _WIDTH


def check_owner_that_stops_and_goes_on():
    layer = _layer("stopped", timeout_s=1.0)
    expected = everything(layer)
    processes = hvd.allgather_object(os.getpid(), name="processes")
    if hvd.rank() == 0:
        os.kill(processes[1], signal.SIGSTOP)
        try:
            started = time.monotonic()
            with raises(
                RuntimeError, "rank 1, which owns a part of layer 'stopped', has not answered for"
            ):
                everything(layer)
            assert time.monotonic() - started >= 1.0
            same_bits(layer(tf.constant([0, 2])), expected[[0, 2]], "rows of this rank")
            with raises(tf.errors.UnknownError, "rank 1, which owns", "'stopped'"):
                step_of(layer)(tf.constant([1], tf.int64))
        finally:
            os.kill(processes[1], signal.SIGCONT)
        same_bits(everything(layer), expected, "rows after it goes on")
    wait_for_all("stopped")


def check_ranks_that_build_other_layers_get_an_error():
    layer = _layer("different", seed=hvd.rank(), timeout_s=20.0)
    with raises(
        RuntimeError,
        "the ranks disagree about layer 'different'",
        f"with seed {hvd.rank()} on this rank",
        f"with seed {1 - hvd.rank()} on rank {1 - hvd.rank()}",
    ):
        everything(layer)


def check_hogwild_workers_with_shadow_sync():
    """Two workers per rank, a partitioned table, and dense layers kept together meanwhile."""
    steps, batch_size = 60, 8
    embedding = _layer("hogwild", embeddings_initializer="zeros")
    keras.utils.set_random_seed(hvd.rank())
    # The gradient of each row that is looked up is 1, whatever the dense layer does.
    ids = keras.Input((1,), dtype="int32")
    dense = keras.layers.Dense(1)(keras.layers.Flatten()(keras.ops.stop_gradient(embedding(ids))))
    output = keras.layers.Concatenate()([dense, keras.layers.Flatten()(embedding(ids))])
    model = keras.Model(ids, output)
    model.compile(
        keras.optimizers.SGD(1e-4),
        loss=lambda y, output: (
            keras.ops.square(output[:, 0] - y[:, 0])
            + batch_size * keras.ops.sum(output[:, 1:], axis=1)
        ),
        jit_compile=False,
    )
    generator = np.random.default_rng(hvd.rank())
    numbers = generator.integers(0, _ROWS, size=(steps * batch_size, 1))
    data = tf.data.Dataset.from_tensor_slices(
        (numbers, np.ones((steps * batch_size, 1), "float32"))
    )
    sync = hvd.shadow.ShadowSync(hvd.shadow.ModelAveraging(), interval_s=0.0, verbose=0)
    hvd.shadow.fit(
        model, data.shuffle(1000).batch(batch_size), workers=2, epochs=2, callbacks=[sync]
    )
    assert sync.error is None
    assert sync.report.synchronizations_per_min > 0
    assert np.all(np.isfinite(model.get_weights()[0]))
    for other in hvd.allgather_object(model.get_weights(), name="hogwild.weights"):
        for mine, theirs in zip(model.get_weights(), other, strict=True):
            same_bits(theirs, mine, "dense weights")
    settle(embedding, "hogwild.trained")
    counts = sum(
        np.bincount(each.ravel(), minlength=_ROWS)
        for each in hvd.allgather_object(numbers, name="hogwild.numbers")
    )
    expected = -2.0 * np.repeat(counts[:, np.newaxis], _WIDTH, axis=1)
    same_bits(everything(embedding), expected.astype("float32"), "table: no update is lost")


def check_beside_overlapped_data_parallelism():
    embedding = _layer("beside", hvd.shadow.RowwiseAdagrad(0.1))
    keras.utils.set_random_seed(hvd.rank())
    model = _model(embedding, 0.1)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    before = everything(embedding)
    wait_for_all("beside")
    generator = np.random.default_rng(hvd.rank())
    model.fit(
        generator.integers(0, _ROWS, size=(64, 3)),
        generator.normal(size=(64, 1)),
        batch_size=8,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.P3Callback(verbose=0),
        ],
        verbose=0,
    )
    assert model.optimizer.is_overlapped()
    settle(embedding, "beside.trained")
    assert np.all(np.any(everything(embedding) != before, axis=1))
    for other in hvd.allgather_object(model.get_weights(), name="weights"):
        for mine, theirs in zip(model.get_weights(), other, strict=True):
            same_bits(theirs, mine, "dense weights")
    for other in hvd.allgather_object(everything(embedding), name="table"):
        same_bits(other, everything(embedding), "table")
