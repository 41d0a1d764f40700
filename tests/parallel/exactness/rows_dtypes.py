"""The exactness table: dtypes and sparse gradients."""

import keras
import table
import tensorflow as tf
from keras import layers, optimizers
from table import run_row as run_check  # noqa: F401

PREFIX = "row_"


def _dense_model(policy):
    with table.dtype_policy(policy):
        return keras.Sequential(
            [
                keras.Input((8,)),
                layers.Dense(6, activation="tanh"),
                layers.BatchNormalization(),
                layers.Dense(4, dtype=None if policy == "float64" else "float32"),
            ]
        )


def _train(run, policy, optimizer, dtype="float32"):
    model = _dense_model(policy)
    run.compile(model, optimizer)
    run.train(model, table.features(dtype=dtype), table.targets(dtype=dtype))


def row_float64(run):
    _train(run, "float64", optimizers.AdamW(0.01, weight_decay=0.1), dtype="float64")


def row_mixed_bfloat16(run):
    _train(run, "mixed_bfloat16", optimizers.Adam(0.01))


def row_bfloat16(run):
    _train(run, "bfloat16", optimizers.SGD(0.05, momentum=0.9))


def row_mixed_float16(run):
    _train(run, "mixed_float16", optimizers.Adam(0.01))


def _embedding_model(vocabulary):
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(vocabulary, 5),
            layers.GlobalAveragePooling1D(),
            layers.Dense(4),
        ]
    )


def _train_embedding(run, optimizer, vocabulary=500, **options):
    model = _embedding_model(vocabulary)
    model.compile(run.distribute(optimizer, **options), loss="mse")
    run.watch(model)
    run.train(model, table.tokens(vocabulary=vocabulary), table.targets())


def row_sparse_rows_exchanged(run):
    _train_embedding(run, optimizers.SGD(0.1, clipnorm=1.0))


def row_sparse_with_adam(run):
    _train_embedding(run, optimizers.Adam(0.01))


def row_sparse_with_a_table_smaller_than_its_rows(run):
    _train_embedding(run, optimizers.SGD(0.1, momentum=0.9), vocabulary=7)


def row_sparse_as_dense(run):
    _train_embedding(run, optimizers.Adam(0.01), sparse_as_dense=True)


class Lookup(keras.Model):
    """Two lookups in one table, one of them of a varying number of rows."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(300, 4)
        self.dense = layers.Dense(4)

    def call(self, inputs):
        some = tf.boolean_mask(inputs, inputs[:, 0] % 2 == 0)
        all_rows = tf.reduce_mean(self.embedding(inputs), axis=1)
        return self.dense(all_rows + tf.reduce_sum(self.embedding(some), axis=[0, 1]))


def row_sparse_with_varying_rows(run):
    model = Lookup()
    model.build((None, 6))
    run.compile(model, optimizers.Adagrad(0.1))
    run.train(model, table.tokens(vocabulary=300), table.targets())
