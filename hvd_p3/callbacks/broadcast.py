"""Gives all ranks the same start."""

import keras
import tensorflow as tf

from hvd_p3 import collectives, training_setup
from hvd_p3.loss_scaling import innermost
from hvd_p3.overlap import eligibility
from hvd_p3.variables import native_variable


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Broadcasts all variables of the model and its optimizer from one rank at the start.

    Needed when ranks start from different random weights, or when one rank has loaded a
    checkpoint. Happens before the first step, or after it for a model that is built at its first
    batch; once for each model and optimizer that the callback is used with.

    Args:
        root_rank: int. The rank whose values count.
        device: str. TensorFlow device of the operation.
        local_variables: Optional variable, or collection of variables, of the model that keep their
            values on each rank, as does the optimizer's state for them. The same on all ranks.

    Raises:
        ValueError: If `root_rank` is no rank of the job, or a local variable is no variable.

    Example:

    ```python
    model.fit(x, y, callbacks=[hvd_p3.callbacks.BroadcastGlobalVariablesCallback(0)])
    ```
    """

    def __init__(self, root_rank, device="", local_variables=None):
        super().__init__()
        collectives.check_root_rank(root_rank)
        self.root_rank = root_rank
        self.device = device
        self._local_variables = []
        if local_variables is None:
            local_variables = []
        elif isinstance(local_variables, (keras.Variable, tf.Variable)):
            local_variables = [local_variables]
        for variable in local_variables:
            self.register_local_var(variable)
        self._done = False
        self._last = (None, None)  # the model and optimizer that `_done` is about

    def register_local_var(self, var):
        """Lets a variable of the model keep its value on each rank.

        Args:
            var: Keras or TensorFlow variable.

        Raises:
            ValueError: If `var` is no variable.

        Example:

        ```python
        callback.register_local_var(model.layers[0].kernel)
        ```
        """
        if not isinstance(var, (keras.Variable, tf.Variable)):
            raise ValueError(
                "Local variables must be Keras or TensorFlow variables. "
                f"Received: {var!r} of type {type(var)}"
            )
        self._local_variables.append(native_variable(var))

    def on_train_begin(self, logs=None):
        training_setup.prepare(self.model)
        trained = (self.model, self.model.optimizer)
        if any(one is not other for one, other in zip(trained, self._last, strict=True)):
            self._last = trained
            self._done = False
        if self.model.built and self.model.optimizer.built:
            self._broadcast()

    def on_train_batch_end(self, batch, logs=None):
        self._broadcast()

    def _broadcast(self):
        if self._done:
            return
        self._done = True
        local = {id(variable) for variable in self._local_variables}
        inner = innermost(self.model.optimizer)
        states, _ = eligibility.state_of_each_variable(inner)
        for variable, state in zip(inner._trainable_variables, states, strict=True):
            if id(native_variable(variable)) in local:
                local.update(id(native_variable(each)) for each in state)
        variables = [
            variable
            for variable in (*self.model.variables, *self.model.optimizer.variables)
            if id(native_variable(variable)) not in local
        ]
        with tf.device(self.device):
            collectives.broadcast_variables(variables, self.root_rank)
