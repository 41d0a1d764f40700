"""Sparse gradients on real ranks: what is sent, and that it is the sum of the dense ones."""

import keras
import numpy as np
import tensorflow as tf
from expect import same_bits

import hvd_p3 as hvd

_ROWS, _WIDTH = 64, 3


def _slices(rank, rows):
    """IndexedSlices of the given row numbers, with values that depend on rank and position."""
    values = np.random.default_rng([rank, len(rows)]).normal(size=(len(rows), _WIDTH))
    return tf.IndexedSlices(
        tf.constant(values.reshape(-1, _WIDTH), tf.float32),
        tf.constant(rows, tf.int64),
        tf.constant([_ROWS, _WIDTH], tf.int64),
    )


def _step(gradient, **options):
    """The variable, 0 before, after one step of SGD with rate 1; and the bytes of dense slices."""
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **options)
    variable = keras.Variable(np.zeros((_ROWS, _WIDTH), "float32"))
    optimizer.build([variable])
    before = hvd.statistics()["bytes"]
    optimizer.apply([gradient], [variable])
    return variable.numpy(), hvd.statistics()["bytes"] - before


def _expected(rows_of_rank, scale):
    total = np.zeros((_ROWS, _WIDTH), "float32")
    for rank in range(hvd.size()):
        total += tf.convert_to_tensor(_slices(rank, rows_of_rank[rank])).numpy()
    return np.float32(0) - total * np.float32(scale)


def check_rows_are_exchanged_without_a_dense_gradient():
    cases = {
        "one row each": [[0], [1]],
        "the same row": [[5], [5]],
        "a row several times": [[7, 7, 2, 7], [2, 7]],
        "no rows on one rank": [[], [3, 4]],
        "no rows at all": [[], []],
    }
    for what, rows in cases.items():
        mine = _slices(hvd.rank(), rows[hvd.rank()])
        result, dense_bytes = _step(mine)
        same_bits(result, _expected(rows, 0.5), what)
        assert dense_bytes == 0, f"{what}: {dense_bytes} bytes went through the queue"
        result, _ = _step(mine, op=hvd.Sum)
        same_bits(result, _expected(rows, 1.0), f"sum of {what}")


def check_dense_gradient_where_it_is_smaller():
    rows = [list(range(_ROWS)), list(range(0, _ROWS, 2))]
    result, dense_bytes = _step(_slices(hvd.rank(), rows[hvd.rank()]))
    same_bits(result, _expected(rows, 0.5), "many rows")
    assert dense_bytes == _ROWS * _WIDTH * 4


def check_sparse_as_dense():
    rows = [[1], [1, 2]]
    result, dense_bytes = _step(_slices(hvd.rank(), rows[hvd.rank()]), sparse_as_dense=True)
    same_bits(result, _expected(rows, 0.5), "sparse_as_dense")
    assert dense_bytes == _ROWS * _WIDTH * 4


def check_dtypes():
    for dtype in (tf.float16, tf.bfloat16, tf.float64):
        for rows in ([[1], [2]], [list(range(_ROWS))] * 2):
            mine = _slices(hvd.rank(), rows[hvd.rank()])
            mine = tf.IndexedSlices(tf.ones_like(mine.values, dtype), mine.indices, None)
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
            variable = keras.Variable(tf.zeros([_ROWS, _WIDTH]), dtype=dtype.name)
            optimizer.build([variable])
            optimizer.apply([mine], [variable])
            used = sorted({row for each in rows for row in each})
            value = -2.0 if rows[0] == rows[1] else -1.0
            assert np.all(np.asarray(variable.numpy(), "float64")[used] == value), dtype


def check_predivided_average_keeps_float16_in_range():
    mine = tf.IndexedSlices(tf.fill([1, _WIDTH], 40000.0), tf.constant([3]), [_ROWS, _WIDTH])
    mine = tf.IndexedSlices(tf.cast(mine.values, tf.float16), mine.indices, mine.dense_shape)
    for factor, expected in ((1.0, -np.inf), (2.0, -40000.0)):
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), gradient_predivide_factor=factor
        )
        variable = keras.Variable(tf.zeros([_ROWS, _WIDTH]), dtype="float16")
        optimizer.build([variable])
        optimizer.apply([mine], [variable])
        assert np.all(variable.numpy()[3] == np.float16(expected)), (factor, variable.numpy()[3])


def check_integers():
    table = tf.Variable(tf.zeros([_ROWS, 2], tf.int32))
    for op, factor in ((hvd.Average, 3), (hvd.Sum, 6)):
        mine = tf.IndexedSlices(tf.fill([1, 2], 3), tf.constant([hvd.rank() // 2]), None)
        options = hvd.reduction_options.ReductionOptions("integers", op)
        reducer = hvd.reduction.GradientReducer(options)
        reducer.build([table])
        reducer.record_forward_order([table])
        (reduced,) = reducer.reduce({0: mine}).values()
        same_bits(reduced.values, np.full((1, 2), factor, "int32"), "rows")


def check_names_do_not_depend_on_what_a_rank_built_before():
    for _ in range(hvd.rank()):  # Keras numbers layers and optimizers
        keras.optimizers.SGD()
        keras.layers.Embedding(2, 2)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((2,), dtype="int32"), keras.layers.Embedding(50, 4), keras.layers.Flatten()]
    )
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    x = np.full((4, 2), hvd.rank())
    callback = hvd.callbacks.P3Callback(verbose=0)
    model.fit(x, np.ones((4, 8)), batch_size=2, callbacks=[callback], verbose=0)
    weights = model.get_weights()[0]
    for other in hvd.allgather_object(weights):
        same_bits(other, weights, "table")
