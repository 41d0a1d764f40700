"""Saves the model on rank 0, into files that are never half written."""

import keras

from hvd_p3 import process
from hvd_p3.callbacks.complete_file import replacing


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """`keras.callbacks.ModelCheckpoint` on rank 0, whose files are whole at any moment.

    A file is written beside its place, in a folder of its name with `.partial` added, and put there
    when it is complete. So a job that is killed while it saves leaves the file that was there
    before. Ranks other than 0 do nothing: all may have this callback, or only rank 0.

    Args:
        filepath, monitor, verbose, save_best_only, save_weights_only, mode, save_freq,
            initial_value_threshold: As in `keras.callbacks.ModelCheckpoint`. `save_best_only` goes
            by the metric of rank 0; see also `hvd_p3.callbacks.BestModelCheckpoint`.

    Raises:
        ValueError: As `keras.callbacks.ModelCheckpoint`; when it saves, if hvd_p3 is not
            initialised.

    Example:

    ```python
    model.fit(x, y, callbacks=[hvd_p3.callbacks.ModelCheckpoint("last.keras")])
    ```
    """

    _saver = None

    @property
    def model(self):
        return super().model if self._saver is None else self._saver

    # Every Keras 3 calls it on all ranks whenever `save_freq` says so, and it decides and saves by
    # `self.model`. What it calls meanwhile is not the same in all versions.
    def _save_model(self, epoch, batch, logs):
        self._know_direction()
        if process.rank() != 0:
            return
        self._saver = _Saver(self.model)
        try:
            super()._save_model(epoch, batch, logs)
        finally:
            self._saver = None

    def _know_direction(self):
        """Sets `monitor_op`, which newer versions of Keras do at the end of an epoch only."""
        if self.save_best_only and self.monitor_op is None:
            self._set_monitor_op()


class _Saver:
    """Stands for a model while it is saved."""

    def __init__(self, model):
        self._model = model

    def save(self, filepath, **arguments):
        with replacing(filepath) as path:
            self._model.save(path, **arguments)

    def save_weights(self, filepath, **arguments):
        with replacing(filepath) as path:
            self._model.save_weights(path, **arguments)

    def __getattr__(self, name):
        return getattr(self._model, name)
