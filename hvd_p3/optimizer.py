"""`DistributedOptimizer`: a Keras optimizer whose gradients are reduced over all ranks."""

import horovod.tensorflow as horovod
import keras

from hvd_p3 import local_layers as layers
from hvd_p3 import process
from hvd_p3.compression import Compression
from hvd_p3.distributed_optimizer import is_distributed, make_distributed
from hvd_p3.local_aggregation import LocalAggregation
from hvd_p3.loss_scaling import innermost
from hvd_p3.reduction import GradientReducer
from hvd_p3.reduction_options import ReductionOptions, check_without_effect


def DistributedOptimizer(
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=horovod.Average,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    num_groups=0,
    groups=None,
    process_set=horovod.global_process_set,
    scale_local_gradients=True,
):
    """Makes a Keras optimizer reduce its gradients over all ranks before it applies them.

    The optimizer itself is changed and returned: it stays an instance of its class with its state
    and configuration. Gradients are reduced within the step (immediate mode) until
    `hvd_p3.callbacks.P3Callback`, or `turn_overlap_on` in a loop of your own, turns overlapped mode
    on. The optimizer has four more methods then: `turn_overlap_on()`, `is_overlapped()`,
    `settle()`, and `register_local_var(variable)` for variables in which ranks may differ.

    Method: Priority-based Parameter Propagation (Jayarajan et al., 2019), section 4. With
    `op=hvd_p3.Adasum`: Scaling Distributed Training with Adaptive Summation (Maleki et al., 2020).

    Args:
        optimizer: `keras.optimizers.Optimizer` that is not distributed yet.
        name: Optional str, the same on all ranks. Part of the tensors' group in errors.
        device_dense: str. No effect: gradients are reduced where they are.
        device_sparse: str. No effect.
        compression: What gradients are turned into for their way between ranks:
            `hvd_p3.Compression.none`, `.fp16` or `.bf16`, or a compressor of your own. Sparse
            gradients are not compressed.
        sparse_as_dense: bool. Whether sparse gradients (`tf.IndexedSlices`), such as those of
            embeddings, are made dense. Dense gradients are overlapped. Sparse ones are reduced
            within the step: ranks exchange their rows, or reduce the dense gradient where that is
            smaller.
        gradient_predivide_factor: float > 0. Gradients are divided by it before the sum and
            multiplied by it after, to keep float16 sums in range. Needs `op=hvd_p3.Average`.
        op: `hvd_p3.Average` (default), `hvd_p3.Sum`, or `hvd_p3.Adasum`, which is always immediate
            mode.
        backward_passes_per_step: int of at least 1. How many calls of `apply` make one update:
            each rank sums their gradients, and ranks reduce the sum. The other calls change no
            weight. `iterations` counts all calls.
        average_aggregated_gradients: bool. Whether such a sum is divided by
            `backward_passes_per_step`.
        num_groups: int. Deprecated form of `groups`.
        groups: int of at least 0, or list of lists of variables. No effect: gradients share
            messages by priority.
        process_set: `ProcessSet` whose ranks reduce together. Another one than that of all ranks is
            always immediate mode. Ranks outside of it train by themselves.
        scale_local_gradients: bool. Whether the gradients of local variables are divided by the
            number of ranks.

    Returns:
        The same optimizer.

    Raises:
        TypeError: If `optimizer` is no Keras optimizer.
        ValueError: If hvd_p3 is not initialised, the optimizer is distributed already, or an
            argument is out of range or does not go with another.

    Example:

    ```python
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd_p3.size()))
    model.compile(optimizer, loss="mse")
    ```
    """
    process.current()
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            "DistributedOptimizer needs an instance of a Keras 3 optimizer, for example "
            f"keras.optimizers.SGD(0.01). Received: {optimizer!r} of type {type(optimizer)}"
        )
    if is_distributed(optimizer):
        raise ValueError(f"Optimizer '{optimizer.name}' is distributed already; wrap it once.")
    check_without_effect(device_dense, device_sparse, num_groups, groups)
    options = ReductionOptions(
        name or "optimizer",
        op,
        gradient_predivide_factor,
        bool(sparse_as_dense),
        compression,
        process_set,
        bool(scale_local_gradients),
    )
    _check_passes(optimizer, op, backward_passes_per_step, average_aggregated_gradients)
    aggregation = None
    if backward_passes_per_step > 1:
        aggregation = LocalAggregation(
            backward_passes_per_step, bool(average_aggregated_gradients), options.sparse_as_dense
        )
    make_distributed(optimizer, GradientReducer(options), aggregation, local_variables=[])
    return optimizer


def PartialDistributedOptimizer(
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=horovod.Average,
    groups=None,
    process_set=horovod.global_process_set,
    local_layers=None,
    scale_local_gradients=True,
):
    """`hvd_p3.DistributedOptimizer` that leaves out some layers, in which ranks may differ.

    Args:
        local_layers: Optional `keras.Layer` or iterable of them, built. The gradients of their
            trainable variables are not reduced.
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense,
            gradient_predivide_factor, op, groups, process_set, scale_local_gradients: As in
            `hvd_p3.DistributedOptimizer`.

    Returns:
        The same optimizer.

    Raises:
        TypeError: If `local_layers` has something else than layers, or `optimizer` is no Keras
            optimizer.
        ValueError: If a layer is not built, or as in `hvd_p3.DistributedOptimizer`.

    Example:

    ```python
    optimizer = hvd_p3.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.01), local_layers=model.layers[-1]
    )
    ```
    """
    variables = layers.trainable_variables(local_layers)
    optimizer = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for variable in variables:
        optimizer.register_local_var(variable)
    return optimizer


def _check_passes(optimizer, op, passes, average):
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
        raise ValueError(
            "backward_passes_per_step must be an integer of at least 1. "
            f"Received: backward_passes_per_step={passes!r}"
        )
    if average and op == horovod.Adasum:
        raise ValueError(
            "average_aggregated_gradients=True does not go with op=hvd_p3.Adasum, which looks at "
            "the directions of sums; leave it out, or use op=hvd_p3.Average."
        )
    steps = innermost(optimizer).gradient_accumulation_steps
    if passes > 1 and steps:
        raise ValueError(
            "backward_passes_per_step and the optimizer's gradient_accumulation_steps do the same; "
            f"use one of them. Received: backward_passes_per_step={passes}, "
            f"gradient_accumulation_steps={steps}"
        )
