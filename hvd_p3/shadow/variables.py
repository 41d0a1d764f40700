"""Which variables of a model are the same on all ranks, and so are synchronised."""

import keras
import tensorflow as tf

from hvd_p3.overlap import guards
from hvd_p3.variables import native_variable, path_of

# A layer whose weights differ between ranks on purpose sets this attribute to True.
LOCAL_ATTRIBUTE = "is_sharded_over_ranks"


def replicated_variables(model):
    """The floating-point variables of a model, without those of layers that are local to a rank.

    Weights and statistics such as those of batch normalisation; no counters, no states of random
    generators, and nothing of the optimizer. A layer is local if its attribute
    `is_sharded_over_ranks` is true.

    Args:
        model: `keras.Model`, built.

    Returns:
        List of `keras.Variable`.
    """
    local = {
        id(variable)
        for layer in model._flatten_layers()
        if getattr(layer, LOCAL_ATTRIBUTE, False)
        for variable in layer.variables
    }
    return [
        variable
        for variable in model.weights
        if id(variable) not in local and keras.backend.is_float_dtype(variable.dtype)
    ]


def is_bounded(variable):
    """Whether values of a variable must stay within those that it has on some rank.

    So with statistics, such as variances, which must not become negative, and with weights that
    have a constraint.

    Args:
        variable: Keras or TensorFlow variable.
    """
    return not variable.trainable or getattr(variable, "constraint", None) is not None


def check_variables(variables):
    """Returns the TensorFlow variables of variables that are to be synchronised.

    Args:
        variables: Iterable of Keras or TensorFlow variables.

    Raises:
        TypeError: If one is none.
        ValueError: If there is none, one is not of floating point, or a distributed optimizer keeps
            it the same on all ranks already.
    """
    natives = []
    for variable in variables:
        native = native_variable(variable)
        if not isinstance(native, tf.Variable):
            raise TypeError(
                "Only Keras and TensorFlow variables can be synchronised. "
                f"Received: {variable!r} of type {type(variable)}"
            )
        if not native.dtype.is_floating:
            raise ValueError(
                "Only variables of floating point can be synchronised. "
                f"Received: '{path_of(variable)}' of dtype {native.dtype.name}"
            )
        if guards.has_any(native):
            raise ValueError(
                f"The variable '{path_of(variable)}' is trained by a DistributedOptimizer in "
                "overlapped mode, which keeps it the same on all ranks. Synchronise other "
                "variables, or train this one with an optimizer that is not distributed."
            )
        natives.append(native)
    if not natives:
        raise ValueError("There are no variables to synchronise. Received an empty list.")
    return natives
