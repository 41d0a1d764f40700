"""Raises the learning rate from that of one rank to that of all."""

from hvd_p3 import process
from hvd_p3.callbacks.learning_rate_schedule import LearningRateScheduleCallback


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr` in the first epochs.

    At each batch, `lr = initial_lr / size * (1 + (size - 1) * epoch / warmup_epochs)`, where
    `epoch` is the number of epochs trained at the end of the batch, a float.

    Method: gradual warm-up of "Accurate, Large Minibatch SGD" (Goyal et al., 2017), section 2.2.

    Args:
        initial_lr: float. The learning rate after warm-up, normally that of one rank multiplied by
            `hvd_p3.size()`.
        warmup_epochs: int above 0. Epochs of warm-up.
        momentum_correction: bool. As in `LearningRateScheduleCallback`.
        steps_per_epoch: Optional int. Batches of an epoch. Needed if Keras does not know them.
        verbose: int. 1 prints a line on rank 0 at the end of warm-up, 0 does not.

    Raises:
        ValueError: If `warmup_epochs` is not above 0, and as `LearningRateScheduleCallback`.

    Example:

    ```python
    warm_up = hvd_p3.callbacks.LearningRateWarmupCallback(0.1 * hvd_p3.size(), warmup_epochs=5)
    model.fit(x, y, epochs=90, callbacks=[warm_up])
    ```
    """

    def __init__(
        self,
        initial_lr,
        warmup_epochs=5,
        momentum_correction=True,
        steps_per_epoch=None,
        verbose=0,
    ):
        if not warmup_epochs > 0:
            raise ValueError(f"warmup_epochs must be above 0. Received: {warmup_epochs}")

        def multiplier(epoch):
            # One batch more, so that the last one of warm-up has the whole rate.
            epoch += 1.0 / self.steps_per_epoch
            size = process.size()
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.end_epoch - 1:
            # With steps_per_execution the last batches have had the rate of those before.
            self._change_learning_rate_to(self.initial_lr)
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch == self.end_epoch - 1 and process.rank() == 0:
            print(
                f"\nEpoch {epoch + 1}: the learning rate has reached {self._learning_rate():g} "
                "at the end of warm-up.",
                flush=True,
            )
