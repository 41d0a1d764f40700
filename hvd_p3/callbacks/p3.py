"""Turns priority scheduling with overlap on for `model.fit`, and reports what it brought."""

import keras

from hvd_p3 import autotune, notices, process, training_setup
from hvd_p3.callbacks.report import CommunicationReport
from hvd_p3.optimizer import is_distributed


class P3Callback(keras.callbacks.Callback):
    """Trains in overlapped mode: each update is applied just before the next forward pass reads it.

    The weights are those of immediate mode. They are settled, that is, no update is pending, at
    validation, prediction, the end of each epoch and of training; whatever reads a variable in
    between settles it first. Where the optimizer cannot be overlapped, says so once and trains in
    immediate mode.

    Adds to each epoch's `logs`, as floats: `p3_slices` (messages), `p3_megabytes` (payload reduced
    by this rank), `p3_forward_wait_s` (seconds that forward passes waited for a reduction) and
    `p3_hidden_share` (share of communication time hidden behind computation, from 0 to 1).

    With the setting `autotune`, searches the settings that make steps fastest meanwhile, and prints
    what it has found on rank 0, whatever `verbose` is.

    Method: Priority-based Parameter Propagation (Jayarajan et al., 2019), section 4; applying
    updates across the step's end as in ByteScheduler (Peng et al., 2019), section 4.

    Args:
        verbose: int. 1 prints a report at the end of training on rank 0, 0 does not.

    Raises:
        ValueError: At the start of training, if the model's optimizer is not distributed.
        ImportError: At the start of training, if `autotune` is on and optuna is not installed.

    Example:

    ```python
    model.fit(x, y, callbacks=[hvd_p3.callbacks.P3Callback()])
    ```
    """

    def __init__(self, verbose=1):
        super().__init__()
        self.verbose = verbose
        self._training = None
        self._epoch = None
        self._tried = False
        self._tuner = None

    def on_train_begin(self, logs=None):
        training_setup.prepare(self.model)
        if not is_distributed(self.model.optimizer):
            raise ValueError(
                "P3Callback needs an optimizer wrapped with hvd_p3.DistributedOptimizer before "
                f"model.compile. Received: {type(self.model.optimizer).__name__}"
            )
        self._tuner = autotune.current()
        self._training = CommunicationReport()
        self._tried = False
        if self.model.optimizer.built:
            self._try_overlap()

    def on_train_batch_end(self, batch, logs=None):
        if self._tuner:
            self._tuner.batch_ended(batch)
        if not self._tried:  # the model was built at its first batch
            self._try_overlap()
            self._skip_interval()  # the next step is traced anew

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = CommunicationReport()
        self._skip_interval()

    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.settle()
        if logs is not None:
            logs.update(self._epoch.as_logs())

    def on_test_begin(self, logs=None):
        self._settle()
        self._skip_interval()

    def on_predict_begin(self, logs=None):
        self._settle()
        self._skip_interval()

    def on_train_end(self, logs=None):
        self.model.optimizer.settle()
        if self.verbose and process.rank() == 0:
            print(self._training.as_text(self.model.optimizer.is_overlapped()), flush=True)
        if self._tuner:
            self._tuner.training_ended()

    def _skip_interval(self):
        if self._tuner:
            self._tuner.skip_interval()

    def _settle(self):
        optimizer = getattr(self.model, "optimizer", None)
        if is_distributed(optimizer):
            optimizer.settle()

    def _try_overlap(self):
        self._tried = True
        current = process.current()
        if current.reduction != process.ENGINE or not current.config.overlap:
            return
        if self.model.run_eagerly:
            notices.train_immediately("the model runs eagerly (run_eagerly=True)")
            return
        reason = training_setup.overlap_training(self.model)
        if reason is not None:
            notices.train_immediately(reason)
