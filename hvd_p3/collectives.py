"""Collectives that are not about ordering gradients: Horovod's own, on Keras variables too."""

import functools

import horovod.tensorflow as horovod
import tensorflow as tf

from hvd_p3 import process
from hvd_p3.variables import native_variable

Average = horovod.Average
Sum = horovod.Sum
Adasum = horovod.Adasum
Min = horovod.Min
Max = horovod.Max
Product = horovod.Product


def _delegate(function, instead_of_bfloat16=lambda tensor: (tensor, lambda result: result)):
    """Horovod's function, after a check that hvd_p3 is initialised, with a Keras variable allowed
    as first argument, and for bfloat16, which Horovod does not know.

    Args:
        function: Function of Horovod.
        instead_of_bfloat16: Function of a bfloat16 tensor that returns the tensor to call Horovod
            with, and a function that turns its result into bfloat16.
    """

    @functools.wraps(function)
    def delegated(tensor, *args, **kwargs):
        process.current()
        tensor = native_variable(tensor)
        if getattr(tensor, "dtype", None) != tf.bfloat16:
            return function(tensor, *args, **kwargs)
        tensor, from_result = instead_of_bfloat16(tensor)
        return from_result(function(tensor, *args, **kwargs))

    return delegated


def _as_bits(tensor):
    bits = tf.bitcast(tensor, tf.uint16)
    return bits, lambda result: tf.bitcast(result, tf.bfloat16)


def _as_float32(tensor):
    return tf.cast(tensor, tf.float32), lambda result: tf.cast(result, tf.bfloat16)


allreduce = _delegate(horovod.allreduce, _as_float32)
allgather = _delegate(horovod.allgather, _as_bits)
broadcast = _delegate(horovod.broadcast, _as_bits)
broadcast_object = _delegate(horovod.broadcast_object)
allgather_object = _delegate(horovod.allgather_object)


def check_root_rank(root_rank):
    """Raises `ValueError` unless `root_rank` is a rank of the job."""
    size = process.size()
    if isinstance(root_rank, bool) or not isinstance(root_rank, int) or not 0 <= root_rank < size:
        raise ValueError(
            f"root_rank must be an integer from 0 to {size - 1}. Received: {root_rank!r}"
        )


def broadcast_variables(variables, root_rank):
    """Gives all ranks the values that the variables have on one rank.

    Args:
        variables: Iterable of Keras or TensorFlow variables, in the same order on all ranks.
        root_rank: int. The rank whose values count.

    Raises:
        ValueError: If `root_rank` is no rank of the job, or hvd_p3 is not initialised.

    Example:

    ```python
    hvd_p3.broadcast_variables(model.variables, root_rank=0)
    ```
    """
    check_root_rank(root_rank)
    if process.size() == 1:
        return
    known, unknown = [], []
    for variable in map(native_variable, variables):
        (unknown if variable.dtype == tf.bfloat16 else known).append(variable)
    if known:
        horovod.broadcast_variables(known, root_rank=root_rank)
    for index, variable in enumerate(unknown):
        variable.assign(broadcast(variable, root_rank, name=f"broadcast_variables.{index}"))
