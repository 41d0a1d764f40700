"""Saves the best model, on which all ranks agree."""

import keras

from hvd_p3 import collectives, process


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Saves the model on rank 0 whenever the mean of a metric over all ranks is the best so far.

    All ranks know the same best value, as `best`. All ranks must have this callback, after those
    that change the metric.

    Args:
        monitor: str. Name of the metric.
        verbose: int. 1 says on rank 0 when the model is saved, 0 does not.
        save_weights_only: bool. Whether to save the weights instead of the model.
        mode: `"min"`, `"max"`, or `"auto"`, which decides by the metric's name.
        save_freq: `"epoch"`, or an int: number of batches.
        filepath: str or path, which may contain fields as in `keras.callbacks.ModelCheckpoint`.
            Ends in `.keras`, or `.weights.h5` for `save_weights_only`.

    Raises:
        ValueError: If `filepath` is missing or of another kind; at the end of an epoch, if some
            ranks do not log the metric.

    Example:

    ```python
    best = hvd_p3.callbacks.BestModelCheckpoint(monitor="val_accuracy", filepath="best.keras")
    model.fit(x, y, validation_data=validation_data, callbacks=[best])
    ```
    """

    def __init__(
        self,
        monitor="val_loss",
        verbose=0,
        save_weights_only=False,
        mode="auto",
        save_freq="epoch",
        *,
        filepath=None,
    ):
        if filepath is None:
            raise ValueError(
                "BestModelCheckpoint needs the file to write: Keras 3 takes no checkpoint without "
                "one. Use BestModelCheckpoint(filepath='best.keras', ...)."
            )
        super().__init__(
            filepath,
            monitor=monitor,
            verbose=verbose if process.rank() == 0 else 0,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )

    def _save_model(self, epoch, batch, logs):
        if self.monitor_op is None:  # Keras sets it at the end of the first epoch
            self._set_monitor_op()
        super()._save_model(epoch, batch, self._with_mean(dict(logs or {})))

    def _should_save_model(self, epoch, batch, logs, filepath):
        # Called on all ranks, since it keeps the best value.
        # Keras saves, with a warning, if the metric is missing, as in an epoch without validation.
        is_best = super()._should_save_model(epoch, batch, logs, filepath)
        return is_best and self.monitor in (logs or {}) and process.rank() == 0

    def _with_mean(self, logs):
        """Replaces the metric in `logs` by its mean over all ranks."""
        if process.size() == 1:
            return logs
        mine = logs.get(self.monitor)
        values = collectives.allgather_object(
            None if mine is None else float(mine), name="hvd_p3.best_model_checkpoint"
        )
        missing = [rank for rank, value in enumerate(values) if value is None]
        if 0 < len(missing) < len(values):
            raise ValueError(
                "BestModelCheckpoint needs the same metrics on all ranks. Received: no "
                f"'{self.monitor}' on ranks {missing}."
            )
        if not missing:
            logs[self.monitor] = sum(values) / len(values)
        return logs
