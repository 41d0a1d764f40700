"""Changes the learning rate by epoch or by batch, and corrects the momentum for it."""

import keras

from hvd_p3 import momentum_correction, training_setup
from hvd_p3.loss_scaling import innermost


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier` from one epoch to another.

    Use several, one after the other, for a schedule of several parts. Logs the learning rate as
    `lr` at the end of each epoch.

    With `momentum_correction`, the velocity of SGD and RMSprop with momentum is brought to the new
    learning rate when the rate changes, in immediate and in overlapped mode.

    Method: momentum correction of "Accurate, Large Minibatch SGD" (Goyal et al., 2017), section 3.

    Args:
        initial_lr: float. The learning rate that `multiplier` multiplies.
        multiplier: Function of the epoch that returns a float; or a float, whose power is taken:
            `multiplier ** (epoch - start_epoch)`.
        start_epoch: int. The first epoch, from 0, in which the learning rate is set.
        end_epoch: Optional int. The epoch from which on it is not set any more.
        staircase: bool. `True` sets it at the first batch of each epoch, and `multiplier` gets an
            int. `False` sets it at each batch, and `multiplier` gets the epoch as float:
            `epoch + batch / steps_per_epoch`.
        momentum_correction: bool. Whether to correct the velocity when the learning rate changes.
        steps_per_epoch: Optional int. Batches of an epoch. Needed for `staircase=False` if Keras
            does not know them.

    Raises:
        ValueError: If `initial_lr` is `None`; at the start of training, if the number of batches is
            needed and not known, or the optimizer has a schedule of its own.

    Example:

    ```python
    decay = hvd_p3.callbacks.LearningRateScheduleCallback(
        initial_lr=0.1 * hvd_p3.size(), multiplier=lambda epoch: 0.1 ** (epoch // 30)
    )
    model.fit(x, y, epochs=90, callbacks=[decay])
    ```
    """

    def __init__(
        self,
        initial_lr,
        multiplier,
        start_epoch=0,
        end_epoch=None,
        staircase=True,
        momentum_correction=True,
        steps_per_epoch=None,
    ):
        super().__init__()
        if initial_lr is None:
            raise ValueError(f"{type(self).__name__} needs initial_lr. Received: initial_lr=None")
        self.initial_lr = initial_lr
        self.multiplier = (
            multiplier
            if callable(multiplier)
            else lambda epoch: multiplier ** (epoch - start_epoch)
        )
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = None
        self._corrects = False

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        learning_rate = innermost(optimizer)._learning_rate
        if not isinstance(learning_rate, keras.Variable):
            raise ValueError(
                f"{type(self).__name__} needs an optimizer whose learning_rate is a number. "
                f"Received: learning_rate={learning_rate}"
            )
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    "Keras does not know the number of batches of this data. Give "
                    f"{type(self).__name__} the argument steps_per_epoch."
                )
        self._corrects = self.momentum_correction and momentum_correction.applies_to(optimizer)
        if self._corrects and momentum_correction.enable(optimizer):
            training_setup.trace_anew(self.model)

    def on_epoch_begin(self, epoch, logs=None):
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._set_learning_rate(epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._set_learning_rate(epoch)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = self._learning_rate()

    def _learning_rate(self):
        return float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _set_learning_rate(self, epoch):
        self._change_learning_rate_to(self.initial_lr * self.multiplier(epoch))

    def _change_learning_rate_to(self, rate):
        before = self._learning_rate()
        self.model.optimizer.learning_rate = rate
        after = self._learning_rate()
        if self._corrects and before > 0:  # after a rate of 0 the velocity has no scale
            momentum_correction.request(self.model.optimizer, after / before)
