"""Gives all ranks the same start."""

import keras

from hvd_p3 import collectives, training_setup


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Broadcasts all variables of the model and its optimizer from one rank at the start.

    Needed when ranks start from different random weights, or when one rank has loaded a
    checkpoint. Happens before the first step, or after it for a model that is built at its first
    batch.

    Args:
        root_rank: int. The rank whose values count.

    Raises:
        ValueError: If `root_rank` is no rank of the job.

    Example:

    ```python
    model.fit(x, y, callbacks=[hvd_p3.callbacks.BroadcastGlobalVariablesCallback(0)])
    ```
    """

    def __init__(self, root_rank):
        super().__init__()
        collectives.check_root_rank(root_rank)
        self.root_rank = root_rank
        self._done = False

    def on_train_begin(self, logs=None):
        training_setup.prepare(self.model)
        if self.model.built and self.model.optimizer.built:
            self._broadcast()

    def on_train_batch_end(self, batch, logs=None):
        self._broadcast()

    def _broadcast(self):
        if self._done:
            return
        self._done = True
        variables = [*self.model.variables, *self.model.optimizer.variables]
        collectives.broadcast_variables(variables, self.root_rank)
