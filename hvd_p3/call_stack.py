"""What the functions that are running now belong to.

TensorFlow and Keras do not tell whoever they call while they trace a function what it is for.
"""

import inspect

from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function


def owners():
    """Yields the `self` of each method that is running in this thread, innermost first."""
    frame = inspect.currentframe().f_back
    while frame is not None:
        owner = frame.f_locals.get("self")
        if owner is not None:
            yield owner
        frame = frame.f_back


def check_not_compiled_by_xla():
    """Raises `ValueError` inside of a `tf.function` that XLA is to compile."""
    if any(isinstance(owner, Function) and owner._jit_compile for owner in owners()):
        raise ValueError(
            "XLA cannot compile hvd_p3's operations. Received: gradients inside of a function with "
            "jit_compile=True. Use model.compile(..., jit_compile=False), or train with "
            "hvd_p3.callbacks.P3Callback, which switches it off."
        )
