"""`DistributedGradientTape`: a gradient tape whose gradients are reduced over all ranks."""

import functools
import threading

import horovod.tensorflow as horovod
import tensorflow as tf

from hvd_p3 import process, tensor_names
from hvd_p3.reduction import GradientReducer

_ARGUMENTS = "_hvd_p3_arguments"

# Programs make a tape for each step. Those with the same arguments and sources share a reducer,
# and with it what ranks have agreed on.
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
        name: Optional str, the same on all ranks. Shown in errors and traces.
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
    if isinstance(gradtape, _DistributedMethods):
        raise ValueError("This tape is distributed already; wrap it once.")
    arguments = (name or "tape", op, gradient_predivide_factor, sparse_as_dense)
    GradientReducer.checked(*arguments)
    vars(gradtape)[_ARGUMENTS] = arguments
    gradtape.__class__ = _distributed_class(type(gradtape))
    return gradtape


@functools.cache
def _distributed_class(tape_class):
    return type(
        tape_class.__name__, (_DistributedMethods, tape_class), {"__doc__": tape_class.__doc__}
    )


class _DistributedMethods:
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
        return tf.nest.pack_sequence_as(
            gradients, [reduced.get(index) for index in range(len(flat))], expand_composites=False
        )


def _reducer(arguments, sources):
    described = [
        (tensor_names.path_of(source), source.dtype, tuple(source.shape)) for source in sources
    ]
    key = (arguments, tuple(described))
    with _lock:
        if key not in _reducers:
            reducer = GradientReducer.checked(*arguments)
            reducer.build(sources)
            _reducers[key] = reducer
        return _reducers[key]
