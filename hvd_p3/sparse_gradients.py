"""Reduces sparse gradients, `tf.IndexedSlices`, such as those of embeddings.

Ranks tell each other which rows they have. If the rows of all ranks together are smaller than the
dense gradient, ranks exchange them; otherwise they reduce the dense gradient. The rows of one rank
are summed first. Exchanged rows are then summed in the order of ranks.
"""

import tensorflow as tf

from hvd_p3 import collectives


def reduce_rows(gradient, shape, name, scale_before, scale_after, reduce_dense, process_set):
    """Sums a sparse gradient over the ranks of a process set.

    Args:
        gradient: `tf.IndexedSlices`. Rows may occur several times, or none at all.
        shape: `tf.TensorShape` of the dense gradient.
        name: str without slashes. The same on all ranks.
        scale_before: float. Factor for exchanged rows, before the sum.
        scale_after: float. Factor for exchanged rows, after the sum.
        reduce_dense: Function of a dense gradient that returns it reduced and scaled.
        process_set: `ProcessSet` that this rank is in.

    Returns:
        `tf.IndexedSlices`, the same on all ranks, in which each row occurs once.
    """
    rows, values = _sum_of_each_row(tf.cast(gradient.indices, tf.int64), gradient.values)
    all_rows = _gather(rows, f"{name}.rows", process_set)
    row_bytes = shape[1:].num_elements() * values.dtype.size
    gathered_bytes = tf.size(all_rows, tf.int64) * (row_bytes + tf.int64.size)

    def gather():
        all_values = _gather(_scaled(values, scale_before), f"{name}.values", process_set)
        unique, summed = _sum_of_each_row(all_rows, all_values)
        return unique, _scaled(summed, scale_after)

    def dense():
        whole = tf.math.unsorted_segment_sum(values, rows, shape[0])
        return tf.range(shape[0], dtype=tf.int64), reduce_dense(tf.ensure_shape(whole, shape))

    rows, values = tf.cond(gathered_bytes < shape[0] * row_bytes, gather, dense)
    values = tf.ensure_shape(values, [None, *shape[1:]])
    return tf.IndexedSlices(values, rows, tf.constant(shape.as_list(), tf.int64))


def values_of(gradients):
    """The tensors of gradients that may be `tf.IndexedSlices`, for control dependencies."""
    return [each.values if isinstance(each, tf.IndexedSlices) else each for each in gradients]


def _gather(tensor, name, process_set):
    # Keras puts the numbers of the process into name scopes; they may differ between ranks.
    return collectives.allgather(tensor, name=name, process_set=process_set, ignore_name_scope=True)


def _sum_of_each_row(rows, values):
    """Returns the different rows, and for each the sum of its values in the order given."""
    unique, position = tf.unique(rows, out_idx=tf.int64)
    return unique, tf.math.unsorted_segment_sum(values, position, tf.size(unique, tf.int64))


def _scaled(values, factor):
    if factor == 1.0:
        return values
    if values.dtype.is_integer:
        return tf.cast(tf.cast(values, tf.float64) * factor, values.dtype)
    return values * tf.cast(factor, values.dtype)
