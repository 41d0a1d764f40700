"""`settle`: applies the updates that overlapped mode has not applied yet."""

import keras
import tensorflow as tf

from hvd_p3.overlap import guards
from hvd_p3.variables import native_variable


def settle(target):
    """Applies what is pending, so that the memory of variables holds their values.

    Nothing that reads a variable needs this: reads settle it. It is for code that goes around
    TensorFlow's variables, such as a kept `variable.handle` or a library of another language, and
    to choose when to wait. Does nothing in immediate mode.

    Args:
        target: `keras.Model`, `keras.Layer`, `keras.optimizers.Optimizer`, a Keras or TensorFlow
            variable, or an iterable of variables.

    Raises:
        TypeError: If `target` is something else.

    Example:

    ```python
    hvd_p3.settle(model)
    ```
    """
    for variable in _variables(target):
        guards.run(variable)


def _variables(target):
    if isinstance(target, (keras.Model, keras.Layer, keras.optimizers.Optimizer)):
        target = target.variables
    elif isinstance(target, (keras.Variable, tf.Variable)):
        target = [target]
    try:
        variables = [native_variable(variable) for variable in target]
    except TypeError:
        variables = None
    if variables is None or not all(isinstance(each, tf.Variable) for each in variables):
        raise TypeError(
            "settle needs a Keras model, layer or optimizer, a variable, or an iterable of "
            f"variables. Received: {target!r} of type {type(target)}"
        )
    return variables
