"""Keras callbacks that keep a state up to date and commit it."""

import keras


class CommitStateCallback(keras.callbacks.Callback):
    """Commits a state every so many batches and at the end of each epoch.

    Put it after callbacks that change the state.

    Args:
        state: State of `hvd_p3.elastic`.
        batches_per_commit: int. Each commit reads all weights, and so waits for all updates: take
            many batches.

    Raises:
        ValueError: If `batches_per_commit` is not above 0.

    Example:

    ```python
    commit = hvd_p3.elastic.CommitStateCallback(state, batches_per_commit=100)
    ```
    """

    def __init__(self, state, batches_per_commit=1):
        super().__init__()
        if not batches_per_commit > 0:
            raise ValueError(f"batches_per_commit must be above 0. Received: {batches_per_commit}")
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs=None):
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch, logs=None):
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch, logs=None):
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps the number of the last batch in `state.batch`; 0 at the end of each epoch.

    Args:
        state: State of `hvd_p3.elastic` with an attribute `batch`.

    Example:

    ```python
    update = hvd_p3.elastic.UpdateBatchStateCallback(state)
    ```
    """

    def __init__(self, state):
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch, logs=None):
        self.state.batch = batch

    def on_epoch_end(self, epoch, logs=None):
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps the number of epochs trained in `state.epoch`, also over several calls of `fit`.

    Continue either with `epochs=total - state.epoch`, or with `initial_epoch=state.epoch` and
    `epochs=total`.

    Args:
        state: State of `hvd_p3.elastic` with an attribute `epoch`.

    Example:

    ```python
    update = hvd_p3.elastic.UpdateEpochStateCallback(state)
    ```
    """

    def __init__(self, state):
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch
        self._first_epoch = None  # Keras's number of the first epoch of this fit

    def on_train_begin(self, logs=None):
        self.initial_epoch = self.state.epoch
        self._first_epoch = None

    def on_epoch_begin(self, epoch, logs=None):
        if self._first_epoch is None:
            self._first_epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        self.state.epoch = self.initial_epoch + epoch - self._first_epoch + 1
