"""XLA cannot compile the custom ops; TensorFlow's own error does not say what to do."""

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from hvd_p3 import call_stack


def check_not_compiling():
    """Raises `ValueError` inside of a `tf.function` that XLA is to compile."""
    if tf.executing_eagerly():
        return  # not tracing: an eager step need not search the call stack
    if any(isinstance(owner, Function) and owner._jit_compile for owner in call_stack.owners()):
        raise ValueError(
            "XLA cannot compile hvd_p3's operations. Received: a function with jit_compile=True. "
            "Use model.compile(..., jit_compile=False), or train with "
            "hvd_p3.callbacks.P3Callback, which switches it off."
        )
