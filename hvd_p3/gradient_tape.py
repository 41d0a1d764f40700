"""`DistributedGradientTape`: a gradient tape whose gradients are reduced over all ranks."""

import dataclasses
import threading

import horovod.tensorflow as horovod
import keras
import tensorflow as tf

from hvd_p3 import local_layers as layers
from hvd_p3 import process, subclassing
from hvd_p3.compression import Compression
from hvd_p3.reduction import GradientReducer
from hvd_p3.reduction_options import ReductionOptions, check_without_effect
from hvd_p3.variables import native_variable, path_of

_OPTIONS = "_hvd_p3_options"
_LOCAL_SOURCES = "_hvd_p3_local_sources"

_NO_JACOBIAN = (
    "A distributed tape reduces gradients, not Jacobians. Compute the Jacobian with a plain "
    "tf.GradientTape, and reduce it with hvd_p3.allreduce."
)

_NO_SECOND = (
    "reduced gradients cannot be differentiated again. Use a plain tf.GradientTape inside, and "
    "hvd_p3.DistributedGradientTape for the outer one."
)

# Programs make a tape for each step. Those with the same arguments, local sources and sources, by
# path, dtype and shape, share a reducer, and with it what ranks have agreed on. Reducers live as
# long as the process. The lock protects the dict; a reducer is used by one thread at a time.
_reducers = {}
_lock = threading.Lock()


def DistributedGradientTape(
    gradtape,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    op=horovod.Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    process_set=horovod.global_process_set,
    scale_local_gradients=True,
    name=None,
):
    """Makes a `tf.GradientTape` reduce the gradients that it computes over all ranks.

    For training loops without `model.fit`. The tape itself is changed and returned. Gradients are
    reduced before `gradient` returns (immediate mode), in the order in which the forward pass needs
    them. Use it with an optimizer that is not distributed.

    The tape has two more methods then: `register_local_source(source)` for sources whose gradients
    are not reduced, and `get_local_and_global_gradients(target, sources)`, which returns the
    gradients of those and of the others apart.

    Method: Priority-based Parameter Propagation (Jayarajan et al., 2019), section 4, without
    overlap across steps. With `op=hvd_p3.Adasum`: Scaling Distributed Training with Adaptive
    Summation (Maleki et al., 2020).

    Args:
        gradtape: `tf.GradientTape`.
        device_dense: str. No effect: gradients are reduced where they are.
        device_sparse: str. No effect.
        compression: What gradients are turned into for their way between ranks:
            `hvd_p3.Compression.none`, `.fp16` or `.bf16`, or a compressor of your own. Sparse
            gradients are not compressed.
        sparse_as_dense: bool. Whether sparse gradients (`tf.IndexedSlices`), such as those of
            embeddings, are made dense.
        op: `hvd_p3.Average` (default), `hvd_p3.Sum` or `hvd_p3.Adasum`.
        gradient_predivide_factor: float > 0. Gradients are divided by it before the sum and
            multiplied by it after, to keep float16 sums in range. Needs `op=hvd_p3.Average`.
        num_groups: int. Deprecated form of `groups`.
        groups: int of at least 0, or list of lists of variables. No effect: gradients share
            messages by priority.
        process_set: `ProcessSet` whose ranks reduce together. Ranks outside of it get their own
            gradients.
        scale_local_gradients: bool. Whether the gradients of local sources are divided by the
            number of ranks.
        name: Optional str, the same on all ranks. Part of the tensors' group in errors.

    Returns:
        The same tape.

    Raises:
        TypeError: If `gradtape` is no `tf.GradientTape`.
        ValueError: If hvd_p3 is not initialised, the tape is distributed already, or an argument is
            out of range or does not go with another.

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
    check_without_effect(device_dense, device_sparse, num_groups, groups)
    vars(gradtape)[_OPTIONS] = ReductionOptions(
        name or "tape",
        op,
        gradient_predivide_factor,
        bool(sparse_as_dense),
        compression,
        process_set,
        bool(scale_local_gradients),
    )
    vars(gradtape)[_LOCAL_SOURCES] = []
    subclassing.mix_in(gradtape, _DistributedTapeMethods)
    return gradtape


def PartialDistributedGradientTape(
    gradtape,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    op=horovod.Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    process_set=horovod.global_process_set,
    local_layers=None,
    scale_local_gradients=True,
):
    """`hvd_p3.DistributedGradientTape` that leaves out some layers, in which ranks may differ.

    Args:
        local_layers: Optional `keras.Layer` or iterable of them, built. The gradients of their
            trainable variables are not reduced.
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op,
            gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients: As in
            `hvd_p3.DistributedGradientTape`.

    Returns:
        The same tape.

    Raises:
        TypeError: If `local_layers` has something else than layers, or `gradtape` is no
            `tf.GradientTape`.
        ValueError: If a layer is not built, or as in `hvd_p3.DistributedGradientTape`.

    Example:

    ```python
    tape = hvd_p3.PartialDistributedGradientTape(tape, local_layers=model.layers[-1])
    ```
    """
    variables = layers.trainable_variables(local_layers)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in variables:
        tape.register_local_source(variable)
    return tape


class _DistributedTapeMethods:
    """Mixed into the class of a distributed tape."""

    def gradient(self, target, sources, *args, use_generic_names=False, **kwargs):
        # use_generic_names is Horovod's: names without the process's own numbers. These always are.
        gradients = super().gradient(target, sources, *args, **kwargs)
        if process.current().reduction == process.NOT_NEEDED:
            return gradients
        flat_sources = tf.nest.flatten(sources)
        flat = tf.nest.flatten(gradients, expand_composites=False)
        reducer = _reducer(vars(self)[_OPTIONS], self._local_indices(flat_sources), flat_sources)
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

    def get_local_and_global_gradients(self, target, sources, *args, **kwargs):
        """Returns two lists of (source, gradient): of local sources, and of the others."""
        gradients = tf.nest.flatten(
            self.gradient(target, sources, *args, **kwargs), expand_composites=False
        )
        sources = tf.nest.flatten(sources)
        local_indices = self._local_indices(sources)
        local, others = [], []
        for index, pair in enumerate(zip(sources, gradients, strict=True)):
            (local if index in local_indices else others).append(pair)
        return local, others

    def register_local_source(self, source):
        """Keeps a source local: its gradient is not reduced.

        Args:
            source: Keras or TensorFlow variable, or tensor.

        Raises:
            TypeError: If `source` is something else.
        """
        if not isinstance(source, (keras.Variable, tf.Variable, tf.Tensor)):
            raise TypeError(
                "register_local_source needs a Keras or TensorFlow variable, or a tensor. "
                f"Received: {source!r} of type {type(source)}"
            )
        vars(self)[_LOCAL_SOURCES].append(native_variable(source))

    def _local_indices(self, sources):
        local = {id(source) for source in vars(self)[_LOCAL_SOURCES]}
        return {
            index for index, source in enumerate(sources) if id(native_variable(source)) in local
        }

    def jacobian(self, *args, **kwargs):
        raise NotImplementedError(_NO_JACOBIAN)

    def batch_jacobian(self, *args, **kwargs):
        raise NotImplementedError(_NO_JACOBIAN)


def _reducer(options, local_indices, sources):
    described = [(path_of(source), source.dtype, tuple(source.shape)) for source in sources]
    # Not the compressor, which may be another object for each tape.
    key = (dataclasses.replace(options, compression=Compression.none), tuple(sorted(local_indices)))
    with _lock:
        reducer = _reducers.get((key, *described))
        if reducer is None:
            reducer = _reducers[(key, *described)] = GradientReducer(options)
            reducer.build(sources)
            reducer.local_indices = local_indices
    reducer.compression = options.compression
    return reducer
