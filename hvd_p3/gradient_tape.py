"""`DistributedGradientTape`: a gradient tape whose gradients are reduced over all ranks."""

import threading

import horovod.tensorflow as horovod
import tensorflow as tf

from hvd_p3 import process, subclassing
from hvd_p3.reduction import GradientReducer, check_arguments
from hvd_p3.variables import path_of

_ARGUMENTS = "_hvd_p3_arguments"

_NO_JACOBIAN = (
    "A distributed tape reduces gradients, not Jacobians. Compute the Jacobian with a plain "
    "tf.GradientTape, and reduce it with hvd_p3.allreduce."
)

_NO_SECOND = (
    "reduced gradients cannot be differentiated again. Use a plain tf.GradientTape inside, and "
    "hvd_p3.DistributedGradientTape for the outer one."
)

# Programs make a tape for each step. Those with the same arguments and sources, by path, dtype and
# shape, share a reducer, and with it what ranks have agreed on. Reducers live as long as the
# process. The lock protects the dict; a reducer is used by one thread at a time.
_reducers = {}
_lock = threading.Lock()


def DistributedGradientTape(
    gradtape,
    name=None,
    sparse_as_dense=False,
    op=horovod.Average,
    gradient_predivide_factor=1.0,
):
    """Makes a `tf.GradientTape` reduce the gradients that it computes over all ranks.

    For training loops without `model.fit`. The tape itself is changed and returned. Gradients are
    reduced before `gradient` returns (immediate mode), in the order in which the forward pass needs
    them. Use it with an optimizer that is not distributed.

    Method: Priority-based Parameter Propagation (Jayarajan et al., 2019), section 4, without
    overlap across steps.

    Args:
        gradtape: `tf.GradientTape`.
        name: Optional str, the same on all ranks. Part of the tensors' group in errors.
        sparse_as_dense: bool. Whether sparse gradients (`tf.IndexedSlices`), such as those of
            embeddings, are made dense.
        op: `hvd_p3.Average` (default) or `hvd_p3.Sum`.
        gradient_predivide_factor: float > 0. Gradients are divided by it before the sum and
            multiplied by it after, to keep float16 sums in range. Needs `op=hvd_p3.Average`.

    Returns:
        The same tape.

    Raises:
        TypeError: If `gradtape` is no `tf.GradientTape`.
        ValueError: If hvd_p3 is not initialised, the tape is distributed already, or `op` or
            `gradient_predivide_factor` is out of range.

    Example:

    ```python
    with tf.GradientTape() as tape:
        loss = loss_function(y, model(x, training=True))
    tape = hvd_p3.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    ```
    """
    process.current()
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(
            "DistributedGradientTape needs a tf.GradientTape. "
            f"Received: {gradtape!r} of type {type(gradtape)}"
        )
    if isinstance(gradtape, _DistributedTapeMethods):
        raise ValueError("This tape is distributed already; wrap it once.")
    check_arguments(op, gradient_predivide_factor)
    vars(gradtape)[_ARGUMENTS] = (
        name or "tape",
        op,
        gradient_predivide_factor,
        bool(sparse_as_dense),
    )
    subclassing.mix_in(gradtape, _DistributedTapeMethods)
    return gradtape


class _DistributedTapeMethods:
    """Mixed into the class of a distributed tape."""

    def gradient(self, target, sources, *args, **kwargs):
        gradients = super().gradient(target, sources, *args, **kwargs)
        if process.current().reduction == process.NOT_NEEDED:
            return gradients
        flat_sources = tf.nest.flatten(sources)
        flat = tf.nest.flatten(gradients, expand_composites=False)
        reducer = _reducer(vars(self)[_ARGUMENTS], flat_sources)
        reducer.record_forward_order(flat_sources)
        reduced = reducer.reduce(
            {index: gradient for index, gradient in enumerate(flat) if gradient is not None}
        )
        for index, gradient in reduced.items():
            if not isinstance(gradient, tf.IndexedSlices):
                reduced[index] = tf.raw_ops.PreventGradient(input=gradient, message=_NO_SECOND)
        return tf.nest.pack_sequence_as(
            gradients, [reduced.get(index) for index in range(len(flat))], expand_composites=False
        )

    def jacobian(self, *args, **kwargs):
        raise NotImplementedError(_NO_JACOBIAN)

    def batch_jacobian(self, *args, **kwargs):
        raise NotImplementedError(_NO_JACOBIAN)


def _reducer(arguments, sources):
    described = [(path_of(source), source.dtype, tuple(source.shape)) for source in sources]
    key = (arguments, tuple(described))
    with _lock:
        if key not in _reducers:
            reducer = GradientReducer(*arguments)
            reducer.build(sources)
            _reducers[key] = reducer
        return _reducers[key]
