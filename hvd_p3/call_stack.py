"""What the functions that are running now belong to.

TensorFlow and Keras do not tell whoever they call while they trace a function what it is for.
"""

import inspect


def owners():
    """Yields the `self` of each method that is running in this thread, innermost first."""
    frame = inspect.currentframe().f_back
    while frame is not None:
        owner = frame.f_locals.get("self")
        if owner is not None:
            yield owner
        frame = frame.f_back
