"""Whether a function is being traced for export, to be run where hvd_p3 is not installed."""

import inspect

import keras
from tensorflow.python.saved_model import save_context


def is_exporting():
    """Returns whether `tf.saved_model.save`, `model.export` or a `keras.export.ExportArchive` is
    tracing a function."""
    if save_context.in_save_context():
        return True
    # Keras traces an archive's endpoints before it saves them, and tells nobody.
    frame = inspect.currentframe()
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), keras.export.ExportArchive):
            return True
        frame = frame.f_back
    return False
