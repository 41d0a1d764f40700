"""Collectives that are not about ordering gradients: Horovod's own, on Keras variables too.

Arguments have the order of `horovod.tensorflow.keras` where it has the function; those that only
`horovod.tensorflow` has come after them. Tensors of bfloat16, which Horovod does not know, are
reduced as float32, and moved as their bits.
"""

import horovod.tensorflow as horovod
import tensorflow as tf
from horovod.tensorflow.compression import Compression

from hvd_p3 import process
from hvd_p3.process_sets import global_process_set
from hvd_p3.variables import native_variable

Average = horovod.Average
Sum = horovod.Sum
Adasum = horovod.Adasum
Min = horovod.Min
Max = horovod.Max
Product = horovod.Product


def _tensor(value):
    """What Horovod can take for a value: a tensor, `tf.IndexedSlices` or TensorFlow variable."""
    process.current()
    value = native_variable(value)
    if isinstance(value, (tf.Tensor, tf.Variable, tf.IndexedSlices)):
        return value
    return tf.convert_to_tensor(value)


def _unchanged(result):
    return result


def _as_bits(tensor):
    """Returns a tensor that Horovod can move, and a function that turns the result back."""
    if tensor.dtype != tf.bfloat16:
        return tensor, _unchanged
    return tf.bitcast(tensor, tf.uint16), lambda result: tf.bitcast(result, tf.bfloat16)


def _as_float32(tensor):
    """Returns a tensor that Horovod can reduce, and a function that turns the result back."""
    if tensor.dtype != tf.bfloat16:
        return tensor, _unchanged
    return tf.cast(tensor, tf.float32), lambda result: tf.cast(result, tf.bfloat16)


def _compressed(tensor, compression):
    """Like `_as_float32`, with compression."""
    if isinstance(tensor, tf.IndexedSlices):
        return _as_float32(tensor)
    compressed, context = compression.compress(tensor)
    reducible, restore = _as_float32(compressed)
    return reducible, lambda result: compression.decompress(restore(result), context)


def _in_group(function, tensors, substitute, **arguments):
    """Calls a grouped operation of Horovod with `substitute` of each tensor."""
    process.current()
    substituted = [substitute(_tensor(tensor)) for tensor in tensors]
    if not substituted:
        return []
    results = function([tensor for tensor, _ in substituted], **arguments)
    return [restore(result) for (_, restore), result in zip(substituted, results, strict=True)]


def allreduce(
    value,
    name=None,
    average=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    op=None,
    compression=Compression.none,
    *,
    device_dense="",
    device_sparse="",
    process_set=global_process_set,
    ignore_name_scope=False,
):
    """Reduces a tensor over all ranks, and gives the result to all of them.

    Args:
        value: Tensor, `tf.IndexedSlices`, Keras or TensorFlow variable, or what `tf.constant`
            takes. The same shape on all ranks.
        name: Optional str, the same on all ranks.
        average: Optional bool, of old programs: `True` is `op=Average`, `False` is `op=Sum`.
        prescale_factor: float. Factor before the reduction.
        postscale_factor: float. Factor after it.
        op: `hvd_p3.Average` (default), `Sum`, `Min`, `Max`, `Product` or `Adasum`.
        compression: `hvd_p3.Compression.none` (default) or another member: the dtype that is sent.
        device_dense: str. TensorFlow device of the operation on dense tensors.
        device_sparse: str. TensorFlow device of the operation on `tf.IndexedSlices`.
        process_set: `hvd_p3.ProcessSet`: the ranks that take part.
        ignore_name_scope: bool. Whether TensorFlow's name scopes are left out of the name.

    Returns:
        A tensor, or `tf.IndexedSlices`, of the dtype of `value`.

    Raises:
        ValueError: If hvd_p3 is not initialised, or both `average` and `op` are given.

    Example:

    ```python
    total = hvd_p3.allreduce([1.0, 2.0], op=hvd_p3.Sum)
    ```
    """
    tensor, restore = _compressed(_tensor(value), compression)
    return restore(
        horovod.allreduce(
            tensor,
            average=average,
            device_dense=device_dense,
            device_sparse=device_sparse,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            name=name,
            process_set=process_set,
            ignore_name_scope=ignore_name_scope,
        )
    )


def grouped_allreduce(
    tensors,
    average=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    ignore_name_scope=False,
    name=None,
):
    """Reduces several tensors of one dtype as one operation.

    Args:
        tensors: Iterable of what `allreduce` takes.
        average, device_dense, device_sparse, compression, op, prescale_factor, postscale_factor,
            process_set, ignore_name_scope, name: As in `allreduce`.

    Returns:
        A list of tensors.

    Raises:
        ValueError: If hvd_p3 is not initialised, or both `average` and `op` are given.

    Example:

    ```python
    one, other = hvd_p3.grouped_allreduce([tf.ones(2), tf.ones(3)], op=hvd_p3.Sum)
    ```
    """
    return _in_group(
        horovod.grouped_allreduce,
        tensors,
        lambda tensor: _compressed(tensor, compression),
        average=average,
        device_dense=device_dense,
        device_sparse=device_sparse,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
        ignore_name_scope=ignore_name_scope,
        name=name,
    )


def allgather(value, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Concatenates the tensors of all ranks along the first axis.

    Args:
        value: As in `allreduce`, not sparse. The first dimension may differ between ranks.
        name: Optional str, the same on all ranks.
        ignore_name_scope: bool. Whether TensorFlow's name scopes are left out of the name.
        process_set: `hvd_p3.ProcessSet`: the ranks that take part.

    Returns:
        A tensor of the dtype of `value`.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    ranks = hvd_p3.allgather([hvd_p3.rank()])
    ```
    """
    tensor, restore = _as_bits(_tensor(value))
    return restore(
        horovod.allgather(
            tensor, name=name, ignore_name_scope=ignore_name_scope, process_set=process_set
        )
    )


def grouped_allgather(tensors, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Gathers several tensors as one operation.

    Args:
        tensors: Iterable of what `allgather` takes.
        name, ignore_name_scope, process_set: As in `allgather`.

    Returns:
        A list of tensors.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    x, y = hvd_p3.grouped_allgather([tf.ones([2, 3]), tf.ones([1])])
    ```
    """
    return _in_group(
        horovod.grouped_allgather,
        tensors,
        _as_bits,
        name=name,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )


def broadcast(value, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Gives all ranks the tensor of one rank.

    Args:
        value: As in `allreduce`, not sparse.
        root_rank: int. The rank whose tensor counts, numbered in the whole job.
        name: Optional str, the same on all ranks.
        ignore_name_scope: bool. Whether TensorFlow's name scopes are left out of the name.
        process_set: `hvd_p3.ProcessSet`: the ranks that take part.

    Returns:
        A tensor of the dtype and shape of `value`.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    seed = hvd_p3.broadcast(hvd_p3.rank() + 17, root_rank=0)
    ```
    """
    tensor, restore = _as_bits(_tensor(value))
    return restore(
        horovod.broadcast(
            tensor,
            root_rank,
            name=name,
            ignore_name_scope=ignore_name_scope,
            process_set=process_set,
        )
    )


def reducescatter(
    value,
    name=None,
    op=Average,
    *,
    device_dense="",
    compression=Compression.none,
    process_set=global_process_set,
    ignore_name_scope=False,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """Reduces a tensor over all ranks, and gives each rank one part of its rows.

    Args:
        value: As in `allreduce`, not sparse.
        name: Optional str, the same on all ranks.
        op: `hvd_p3.Average` (default) or `hvd_p3.Sum`.
        device_dense, compression, process_set, ignore_name_scope, prescale_factor,
            postscale_factor: As in `allreduce`.

    Returns:
        A tensor: of the rows of the result, in the order of ranks, those of this rank.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    mine = hvd_p3.reducescatter(tf.ones([hvd_p3.size(), 4]))
    ```
    """
    tensor, restore = _compressed(_tensor(value), compression)
    return restore(
        horovod.reducescatter(
            tensor,
            device_dense=device_dense,
            op=op,
            name=name,
            process_set=process_set,
            ignore_name_scope=ignore_name_scope,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
    )


def grouped_reducescatter(
    tensors,
    device_dense="",
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """Reduces and scatters several tensors of one dtype as one operation.

    Args:
        tensors: Iterable of what `reducescatter` takes.
        device_dense, compression, op, process_set, prescale_factor, postscale_factor: As in
            `reducescatter`.

    Returns:
        A list of tensors.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    one, other = hvd_p3.grouped_reducescatter([tf.ones([2, 4]), tf.ones([4])])
    ```
    """
    return _in_group(
        horovod.grouped_reducescatter,
        tensors,
        lambda tensor: _compressed(tensor, compression),
        device_dense=device_dense,
        op=op,
        process_set=process_set,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def alltoall(
    tensor, splits=None, name=None, ignore_name_scope=False, process_set=global_process_set
):
    """Sends a part of the rows of a tensor to each rank, and gathers what this rank is sent.

    Args:
        tensor: As `value` in `allreduce`, not sparse.
        splits: Optional vector of int: for each rank the number of rows that it is sent. By
            default all are sent equally many.
        name: Optional str, the same on all ranks.
        ignore_name_scope: bool. Whether TensorFlow's name scopes are left out of the name.
        process_set: `hvd_p3.ProcessSet`: the ranks that take part.

    Returns:
        The received rows in the order of ranks; if `splits` is given, a tuple of them and the
        number of rows from each rank.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    received = hvd_p3.alltoall(tf.range(hvd_p3.size()))
    ```
    """
    tensor, restore = _as_bits(_tensor(tensor))
    result = horovod.alltoall(
        tensor,
        splits=splits,
        name=name,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )
    if splits is None:
        return restore(result)
    received, received_splits = result
    return restore(received), received_splits


def broadcast_object(obj, root_rank=0, session=None, name=None, process_set=global_process_set):
    """Gives all ranks the Python object of one rank.

    Args:
        obj: Object that can be pickled. That of other ranks is ignored.
        root_rank: int. The rank whose object counts.
        session: Must be `None`; for TensorFlow 1 in Horovod.
        name: Optional str, the same on all ranks.
        process_set: `hvd_p3.ProcessSet`: the ranks that take part.

    Returns:
        The object of rank `root_rank`.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    settings = hvd_p3.broadcast_object({"layers": 3})
    ```
    """
    process.current()
    return horovod.broadcast_object(
        obj, root_rank=root_rank, session=session, name=name, process_set=process_set
    )


def allgather_object(obj, session=None, name=None, process_set=global_process_set):
    """Gathers one Python object from each rank.

    Args:
        obj: Object that can be pickled.
        session: Must be `None`; for TensorFlow 1 in Horovod.
        name: Optional str, the same on all ranks.
        process_set: `hvd_p3.ProcessSet`: the ranks that take part.

    Returns:
        A list of the objects of all ranks.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    host_names = hvd_p3.allgather_object(socket.gethostname())
    ```
    """
    process.current()
    return horovod.allgather_object(obj, session=session, name=name, process_set=process_set)


def join():
    """Says that this rank has no more data for Horovod's collectives, and waits for all others.

    Until then this rank takes part in the `allreduce` calls of the others with zeros. Gradients of
    `DistributedOptimizer` and `DistributedGradientTape` go through the priority queue, in which a
    rank cannot be represented by zeros: ranks that still train would wait for this one. Give all
    ranks equally many batches instead, see `hvd_p3.data.equal_batches`.

    Returns:
        The rank that joined last, as an int tensor.

    Raises:
        ValueError: If hvd_p3 is not initialised.

    Example:

    ```python
    for value in values_of_this_rank:  # of another length on each rank
        total = hvd_p3.allreduce(value, op=hvd_p3.Sum, name="total")
    last = hvd_p3.join()
    ```
    """
    process.current()
    return horovod.join()


def check_root_rank(root_rank, process_set=global_process_set):
    """Raises `ValueError` unless `root_rank` is a rank of the job and of the process set."""
    size = process.size()
    if isinstance(root_rank, bool) or not isinstance(root_rank, int) or not 0 <= root_rank < size:
        raise ValueError(
            f"root_rank must be an integer from 0 to {size - 1}. Received: {root_rank!r}"
        )
    if process_set.ranks and root_rank not in process_set.ranks:
        raise ValueError(
            f"root_rank must be one of the ranks {process_set.ranks} of the process set. "
            f"Received: {root_rank}"
        )


def broadcast_variables(variables, root_rank, process_set=global_process_set, inplace=False):
    """Gives all ranks the values that the variables have on one rank.

    Args:
        variables: Iterable of Keras or TensorFlow variables, in the same order on all ranks.
        root_rank: int. The rank whose values count, numbered in the whole job.
        process_set: `hvd_p3.ProcessSet`: the ranks that take part. Others need not call this.
        inplace: bool. No effect: each value is received and then assigned.

    Raises:
        ValueError: If `root_rank` is no rank of the process set, or hvd_p3 is not initialised.

    Example:

    ```python
    hvd_p3.broadcast_variables(model.variables, root_rank=0)
    ```
    """
    check_root_rank(root_rank, process_set)
    if process.size() == 1:
        return
    variables = [native_variable(variable) for variable in variables]

    # In one function, so that ranks need not agree on one variable after the other.
    @tf.function(autograph=False)
    def broadcast_all():
        for index, variable in enumerate(variables):
            value = broadcast(
                variable,
                root_rank,
                # Names of variables contain Keras's numbers, which may differ between ranks.
                name=f"hvd_p3.broadcast_variables.{index}",
                ignore_name_scope=True,
                process_set=process_set,
            )
            variable.assign(value)

    # Each call makes a function. TensorFlow takes them for one, and would warn of traces.
    broadcast_all.get_concrete_function()()


def broadcast_global_variables(root_rank):
    """Raises: TensorFlow 2 has no list of all variables. Use `broadcast_variables`.

    Args:
        root_rank: int.

    Raises:
        RuntimeError: Always, and says what to use.

    Example:

    ```python
    hvd_p3.broadcast_variables([*model.variables, *model.optimizer.variables], root_rank=0)
    ```
    """
    raise RuntimeError(
        "TensorFlow 2 has no list of global variables. Use hvd_p3.broadcast_variables("
        f"[*model.variables, *model.optimizer.variables], root_rank={root_rank!r}), or "
        "hvd_p3.callbacks.BroadcastGlobalVariablesCallback."
    )
