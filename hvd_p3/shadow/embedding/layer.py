"""`ShardedEmbedding`: a Keras layer whose table is partitioned over the ranks."""

import warnings

import keras
import tensorflow as tf

from hvd_p3.shadow.embedding import node
from hvd_p3.shadow.embedding.initialization import check_initializer
from hvd_p3.shadow.embedding.optimizers import check_optimizer
from hvd_p3.shadow.embedding.partition import check_kind
from hvd_p3.shadow.embedding.table import ShardedTable


class _Anchor:
    """Something that gradients are taken of, so that TensorFlow runs the layer's gradient.

    A variable of no use, which neither Keras nor an optimizer sees.
    """

    def __init__(self):
        with tf.init_scope():
            self._variable = tf.Variable(0.0, trainable=True, name="anchor")

    def read(self):
        return self._variable.read_value()


@keras.saving.register_keras_serializable("hvd_p3.shadow")
class ShardedEmbedding(keras.layers.Layer):
    """Turns integer ids into vectors, from a table that is partitioned over all ranks.

    A replacement for `keras.layers.Embedding` where the table is too large for one process, or its
    updates for the network. Each rank owns a part of the table. A lookup fetches the rows of a
    batch from their owners, each different id once. In the backward pass the gradients, summed for
    each id, travel to the owners, which apply the layer's own optimizer; nobody waits for that.
    Ranks may do any number of lookups at any time: a thread of each rank answers the others.

    The table is no variable of the layer: optimizers, `hvd_p3.shadow.ShadowSync`, callbacks that
    broadcast variables and Keras's checkpoints do not see it. Save it with
    `hvd_p3.shadow.save_embeddings`. Each rank's gradients are applied by themselves, as they come:
    they are neither averaged nor in step with those of other ranks.

    Build the same layers in the same order on all ranks; the first to be built waits up to ten
    minutes for the other ranks. A model needs other trainable weights beside those of such layers,
    since Keras takes no gradients without.

    Method: embedding tables under model parallelism with asynchronous updates, as in ShadowSync
    (Zheng et al., 2020, arXiv 2003.03477), section 3, and DLRM (Naumov et al., 2019).

    Args:
        input_dim: int of at least 1. Rows of the table; ids are from 0 to `input_dim - 1`.
        output_dim: int of at least 1. Length of the vectors.
        optimizer: `hvd_p3.shadow.SparseSGD`, `hvd_p3.shadow.RowwiseAdagrad`, or an instance of
            another subclass of `hvd_p3.shadow.SparseOptimizer`. Updates this table, on each owner.
        embeddings_initializer: As in `keras.layers.Embedding`: one of Keras's `RandomUniform`,
            `RandomNormal`, `Zeros`, `Ones` and `Constant`.
        partition: str. "rows" gives each rank every size()-th row, which spreads frequent ids over
            the ranks; "columns" gives each rank some columns of all rows: for tables with few,
            wide rows.
        seed: int. The initial table depends on it and the layer's name, not on the number of ranks.
        timeout_s: float > 0. How long an owner may take to answer, in seconds.
        **kwargs: As in `keras.layers.Layer`, for example `name` and `trainable`. `dtype` is that of
            the table and of the vectors: float32, float64 or mixed_bfloat16.

    Input shape:
        Integers of any shape.

    Output shape:
        The input's shape with `output_dim` appended.

    Raises:
        ValueError: If an argument is out of range, or hvd_p3 is not initialised when it is built.
            Calls raise it for ids that are out of range, as `tf.errors.InvalidArgumentError` in
            graph mode.
        TypeError: If `optimizer` is none for embedding tables.
        RuntimeError: If ranks disagree about the layer, or an owner is gone or does not answer
            within `timeout_s`. In graph mode `tf.errors.UnknownError`.

    Example:

    ```python
    users = hvd_p3.shadow.ShardedEmbedding(
        10_000_000, 32, optimizer=hvd_p3.shadow.RowwiseAdagrad(0.05), name="users"
    )
    vectors = users(user_ids)  # [batch, 32]
    ```
    """

    is_sharded_over_ranks = True  # for ShadowSync, should a subclass have variables

    def __init__(
        self,
        input_dim,
        output_dim,
        optimizer,
        embeddings_initializer="uniform",
        partition="rows",
        seed=0,
        timeout_s=60.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.autocast = False  # ids are no numbers to be rounded
        self.supports_jit = False
        self.input_dim = _positive("input_dim", input_dim)
        self.output_dim = _positive("output_dim", output_dim)
        self.optimizer = check_optimizer(optimizer)
        self.embeddings_initializer = check_initializer(embeddings_initializer)
        check_kind(partition)
        self.partition = partition
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError(f"seed must be an integer. Received: {seed!r}")
        self.seed = seed
        if isinstance(timeout_s, bool) or not timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0 seconds. Received: {timeout_s!r}")
        self.timeout_s = float(timeout_s)
        _check_dtypes(self.variable_dtype, self.compute_dtype)
        self._table = None
        self._anchor = None

    @property
    def table(self):
        """The `ShardedTable`, for lookups and updates without Keras; `None` until it is built."""
        return self._table

    def build(self, input_shape=None):
        if self._table is None:
            self._table = ShardedTable(
                self.name,
                self.input_dim,
                self.output_dim,
                self.optimizer,
                self.embeddings_initializer,
                self.seed,
                self.variable_dtype,
                self.partition,
                self.timeout_s,
                node.current(),
            )
            self._anchor = _Anchor()
        self.built = True

    def call(self, ids):
        ids = tf.cast(tf.convert_to_tensor(ids), tf.int64)
        different, position = tf.unique(tf.reshape(ids, [-1]), out_idx=tf.int64)
        shape = tf.concat([tf.shape(ids), [self.output_dim]], 0)

        @tf.custom_gradient
        def look_up(anchor):
            rows = _run(self._look_up, [different], self.variable_dtype)
            rows = tf.ensure_shape(rows, [None, self.output_dim])
            vectors = tf.reshape(tf.gather(rows, position), shape)

            def send(gradient):
                gradient = tf.reshape(gradient, [-1, self.output_dim])
                summed = tf.math.unsorted_segment_sum(
                    gradient, position, tf.size(different, tf.int64)
                )
                with tf.control_dependencies([_run(self._update, [different, summed], "bool")]):
                    return tf.zeros_like(anchor)

            return vectors, send

        vectors = look_up(self._anchor.read()) if self.trainable else look_up(tf.constant(0.0))
        vectors = tf.ensure_shape(vectors, [*ids.shape, self.output_dim])
        return tf.cast(vectors, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, ids):
        return keras.KerasTensor(self.compute_output_shape(ids.shape), dtype=self.compute_dtype)

    def release(self):
        """Gives the memory of this rank's part of the table back.

        Call it on all ranks, when no rank uses the layer any more: a rank that still does gets an
        error that says so. The table lives as long as the process otherwise, since other ranks may
        need it longer than this one.
        """
        if self._table is not None:
            self._table.release()
            self._table = None
            self.built = False

    def get_config(self):
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "optimizer": keras.saving.serialize_keras_object(self.optimizer),
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "partition": self.partition,
            "seed": self.seed,
            "timeout_s": self.timeout_s,
        }

    def save_own_variables(self, store):
        warnings.warn(
            f"The table of layer '{self.name}' is partitioned over the ranks and is no part of "
            "Keras's files: save it with hvd_p3.shadow.save_embeddings.",
            stacklevel=2,
        )

    def load_own_variables(self, store):
        pass  # none are saved

    def _look_up(self, ids):
        return self._table.look_up(ids)

    def _update(self, ids, gradients):
        self._table.update_different(ids, gradients)
        return True


def _run(function, inputs, dtype):
    """Runs a function of NumPy arrays within the graph, or at once in eager mode."""
    if tf.executing_eagerly():
        return tf.convert_to_tensor(function(*(each.numpy() for each in inputs)))
    return tf.numpy_function(function, inputs, tf.as_dtype(dtype))


def _positive(name, value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1. Received: {value!r}")
    return value


def _check_dtypes(table, vectors):
    if table not in ("float32", "float64") or vectors not in (table, "bfloat16"):
        raise ValueError(
            "ShardedEmbedding needs dtype float32, float64 or mixed_bfloat16. With float16, losses "
            "are scaled, and so would be the updates of the table. Give the layer "
            f"dtype='float32'. Received: a table of {table} and vectors of {vectors}"
        )
