"""Whether a function is being traced for export, to be run where hvd_p3 is not installed."""

import keras
from tensorflow.python.saved_model import save_context

from hvd_p3 import call_stack


def is_exporting():
    """Returns whether `tf.saved_model.save`, `model.export` or a `keras.export.ExportArchive` is
    tracing a function."""
    if save_context.in_save_context():
        return True
    # Keras traces an archive's endpoints before it saves them, and tells nobody.
    return any(isinstance(owner, keras.export.ExportArchive) for owner in call_stack.owners())
