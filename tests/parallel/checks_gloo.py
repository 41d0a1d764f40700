"""Where Horovod runs on Gloo, gradients go through Horovod's own operations."""

import keras
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd


def check_dense_and_sparse_gradients_of_an_optimizer():
    dense, table = keras.Variable(np.zeros(3, "float32")), keras.Variable(np.zeros((9, 2), "f4"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.build([dense, table])
    assert "Gloo" in optimizer.turn_overlap_on()
    for rows in ([hvd.rank(), 5], list(range(9))):  # few rows, and as many as the table has
        gradients = [
            tf.fill([3], 2.0 * hvd.rank()),
            tf.IndexedSlices(tf.ones([len(rows), 2]), tf.constant(rows), tf.constant([9, 2])),
        ]
        tf.function(lambda given=gradients: optimizer.apply(given), autograph=False)()
    same_bits(dense.numpy(), np.full(3, -2.0, "float32"), "dense")
    expected = np.full((9, 2), -1.0, "float32")
    expected[[0, 1]], expected[5] = -1.5, -2.0
    same_bits(table.numpy(), expected, "table")


def check_tape():
    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable) * (1.0 + hvd.rank())
    gradient = hvd.DistributedGradientTape(tape).gradient(loss, variable)
    same_bits(gradient, np.float32([1.5, 1.5]), "gradient")


def check_compression_and_backward_passes():
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        variable = keras.Variable(np.zeros(3, "float32"))
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), compression=compression, backward_passes_per_step=2
        )
        for value in (1.0 + hvd.rank(), 2.0**-20):  # the second is lost: 16 bits hold the sum
            optimizer.apply([tf.fill([3], value)], [variable])
        same_bits(variable.numpy(), np.full(3, -1.5, "float32"), "variable")


def check_adasum_is_refused():
    with raises(ValueError, "op=hvd_p3.Adasum", "horovodrun --mpi"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Adasum)


def check_timeline_says_what_to_use_instead():
    with raises(RuntimeError, "Horovod runs on Gloo", "HOROVOD_TIMELINE"):
        hvd.start_timeline("timeline.json")
