"""Collectives that are not about ordering gradients: Horovod's own, on Keras variables too."""

import functools

import horovod.tensorflow as horovod

from hvd_p3 import process
from hvd_p3.variables import native_variable

Average = horovod.Average
Sum = horovod.Sum
Adasum = horovod.Adasum
Min = horovod.Min
Max = horovod.Max
Product = horovod.Product


def _delegate(function):
    """Horovod's function, after a check that hvd_p3 is initialised, with a Keras variable allowed
    as first argument."""

    @functools.wraps(function)
    def delegated(tensor, *args, **kwargs):
        process.current()
        return function(native_variable(tensor), *args, **kwargs)

    return delegated


allreduce = _delegate(horovod.allreduce)
allgather = _delegate(horovod.allgather)
broadcast = _delegate(horovod.broadcast)
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
    variables = [native_variable(variable) for variable in variables]
    if variables and process.size() > 1:
        horovod.broadcast_variables(variables, root_rank=root_rank)
