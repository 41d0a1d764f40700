"""Saves the best model, on which all ranks agree."""

import warnings

from hvd_p3 import collectives, process
from hvd_p3.callbacks.model_checkpoint import ModelCheckpoint


class BestModelCheckpoint(ModelCheckpoint):
    """Saves the model on rank 0 whenever the mean of a metric over all ranks is the best so far.

    All ranks know the same best value, as `best`. All ranks must have this callback, after those
    that change the metric. The file of the best model so far stays until the better one is
    complete, as in `hvd_p3.callbacks.ModelCheckpoint`.

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
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )

    def _save_model(self, epoch, batch, logs):
        logs = self._with_mean(dict(logs or {}))
        if self.monitor not in logs:  # as in an epoch without validation
            if process.rank() == 0:
                warnings.warn(
                    f"BestModelCheckpoint does not save: the logs have no '{self.monitor}'. "
                    f"They have: {', '.join(logs) or 'nothing'}",
                    stacklevel=2,
                )
            return
        super()._save_model(epoch, batch, logs)  # decides and saves on rank 0
        value = logs[self.monitor]
        if process.rank() != 0 and (self.best is None or self.monitor_op(value, self.best)):
            self.best = value

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
