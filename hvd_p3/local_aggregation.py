"""Local gradient aggregation: sums of several backward passes, made before ranks communicate."""

import tensorflow as tf

from hvd_p3 import process
from hvd_p3.sparse_gradients import values_of


class LocalAggregation:
    """Sums the gradients of a number of backward passes on this rank.

    Used by one thread at a time, the one that traces or runs eagerly. The sums are variables of
    their own, one for each gradient, made at the first pass.

    Args:
        passes: int of at least 2. Backward passes for each update.
        average: bool. Whether a sum is divided by `passes`.
        sparse_as_dense: bool. Whether sparse gradients are made dense; otherwise they are refused.
    """

    def __init__(self, passes, average, sparse_as_dense):
        self._passes = passes
        self._average = average
        self._sparse_as_dense = sparse_as_dense
        self._count = None  # passes since the last update; on the host, where it decides
        self._sums = {}  # index of the gradient -> tf.Variable

    def add(self, gradients):
        """Adds the gradients of a pass.

        Args:
            gradients: dict of variable index to tensor or `tf.IndexedSlices`.

        Returns:
            A bool tensor: whether this pass completes an update. And a dict of variable index to
            tensor: what to update with if so.

        Raises:
            ValueError: If a gradient is sparse, or others than in earlier passes are given.
        """
        gradients = {index: self._dense(gradient) for index, gradient in gradients.items()}
        self._build(gradients)
        with tf.device("CPU:0"):
            count = self._count + 1
            is_last = count >= self._passes
        totals = {index: self._sums[index] + gradient for index, gradient in gradients.items()}
        # A pass that has no data, at the end of a dataset of unknown length, must not count.
        with tf.control_dependencies(values_of(gradients.values())):
            self._count.assign(tf.where(is_last, tf.zeros_like(count), count))
            for index, total in totals.items():
                self._sums[index].assign(tf.where(is_last, tf.zeros_like(total), total))
        if self._average:
            totals = {
                index: total / tf.cast(self._passes, total.dtype) for index, total in totals.items()
            }
        return is_last, totals

    def _dense(self, gradient):
        if isinstance(gradient, tf.IndexedSlices) and not self._sparse_as_dense:
            raise ValueError(
                "backward_passes_per_step above 1 needs dense gradients; use sparse_as_dense=True. "
                f"Received: a sparse gradient, {gradient}"
            )
        return tf.convert_to_tensor(gradient)

    def _build(self, gradients):
        if self._count is None:
            with tf.init_scope():
                # On the host, which decides by it; on one rank XLA may compile the step, and takes
                # variables of its own device only.
                alone = process.current().reduction == process.NOT_NEEDED
                with tf.device(None if alone else "CPU:0"):
                    self._count = tf.Variable(0, trainable=False, dtype=tf.int64)
                self._sums = {
                    index: tf.Variable(tf.zeros(gradient.shape, gradient.dtype), trainable=False)
                    for index, gradient in gradients.items()
                }
        if self._sums.keys() != gradients.keys():
            raise ValueError(
                "backward_passes_per_step above 1 needs gradients of the same variables in every "
                f"pass. Received: gradients of variables {sorted(gradients)} of the optimizer's "
                f"list, and of {sorted(self._sums)} in earlier passes"
            )


def run_if(condition, function, after):
    """Runs a function without result where a bool tensor is true; always if it is `None`.

    Args:
        condition: Bool tensor or `None`.
        function: Function without arguments.
        after: List of tensors or operations. Without them, in a step that fails before it has
            computed them, nothing in the function runs. Inside of a branch TensorFlow may drop
            control dependencies on tensors from outside, so the condition has them.
    """
    with tf.control_dependencies(after):
        if condition is None:
            function()
            return
        with tf.device("CPU:0"):
            condition = tf.identity(condition)
    tf.cond(condition, function, lambda: None)


def in_this_branch(gradients):
    """Brings gradients into the graph of a branch: Keras does not take them from outside of it.

    Args:
        gradients: dict of variable index to tensor or `tf.IndexedSlices`.
    """
    return {index: tf.identity(gradient) for index, gradient in gradients.items()}
