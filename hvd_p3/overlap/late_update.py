"""Applies an optimizer's update of one variable later than its step, as if in it.

Keras's own code computes the update. While it runs, the optimizer's attributes show what they were
in the step: learning rate, iteration count, Python hyper-parameters; and those lists that Keras
goes through from end to end show the one variable alone.
"""

import contextlib
import threading

import keras
import tensorflow as tf

from hvd_p3 import momentum_correction
from hvd_p3.overlap import eligibility
from hvd_p3.overlap.hyper_parameters import HyperParameters

# Key, among the shown attributes, of the result of _get_current_learning_rate.
LEARNING_RATE = "current learning rate"


class LateUpdates:
    """The updates of one optimizer. Used by the thread that traces or runs eagerly.

    Args:
        optimizer: A built optimizer that `eligibility` accepts. Its class looks up attributes in
            `shown` first.
    """

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self._shared_state = eligibility.shared_state(optimizer)
        self._versions = [HyperParameters(optimizer, version=0)]
        self._thread = threading.local()
        with tf.init_scope():
            self.context_specs = [tf.TensorSpec.from_tensor(tensor) for tensor in self.context()]

    @property
    def shown(self):
        """dict of the attributes that this thread's late update sees, or `None`."""
        return getattr(self._thread, "shown", None)

    @property
    def version(self):
        """The number of the hyper-parameters that functions are traced with now."""
        return self._versions[-1].version

    def changed_hyper_parameter(self):
        """Says which hyper-parameter has changed since `version` was made, or returns `None`."""
        return self._versions[-1].difference(HyperParameters(self._optimizer, self.version))

    def adopt_hyper_parameters(self):
        """Makes a new version for functions traced from now on, if anything has changed.

        Nothing may be pending: guards of functions traced from now on use the new version.

        Returns:
            Whether there is a new version.
        """
        if self.changed_hyper_parameter() is None:
            return False
        self._versions.append(HyperParameters(self._optimizer, self.version + 1))
        return True

    def context(self):
        """The tensors that travel with a gradient: what its update must see of its step."""
        optimizer = self._optimizer
        learning_rate = optimizer._get_current_learning_rate()
        # All floating-point rates fit into float64 exactly, so one dtype serves all kinds of rate.
        learning_rate = tf.cast(tf.convert_to_tensor(learning_rate), tf.float64)
        shared = [getattr(optimizer, name) for name in self._shared_state]
        return [
            learning_rate,
            momentum_correction.factor(optimizer),
            *(tf.convert_to_tensor(each) for each in (optimizer._iterations, *shared)),
        ]

    def context_taken(self):
        """Prepares for the next step, after `context` of this one; call where there is data."""
        momentum_correction.used(self._optimizer)

    def apply(self, index, gradient, context, version):
        """Does what Keras's `apply` does for one variable in the step that pushed its gradient.

        Args:
            index: int. Index of the variable.
            gradient: Dense tensor or `tf.IndexedSlices`: the reduced gradient.
            context: List of tensors: the result of `context` in that step.
            version: Number of the hyper-parameters with which the step was traced.
        """
        optimizer = self._optimizer
        hyper_parameters = self._versions[version]
        learning_rate, velocity_factor, iterations, *shared = context
        if hyper_parameters.learning_rate is not None:
            learning_rate = hyper_parameters.learning_rate
        else:
            learning_rate = tf.cast(learning_rate, hyper_parameters.learning_rate_dtype)
        step = {
            **hyper_parameters.values,
            **hyper_parameters.caches,
            "_learning_rate": hyper_parameters.learning_rate_object,
            LEARNING_RATE: learning_rate,
            momentum_correction.FACTOR: velocity_factor,
            "_iterations": iterations,
            **dict(zip(self._shared_state, shared, strict=True)),
            **self._lists_of([index]),
        }
        variable = optimizer._trainable_variables[index]
        with self._showing(step):
            if optimizer.loss_scale_factor is not None:
                gradient = gradient / optimizer.loss_scale_factor
            optimizer._backend_apply_gradients([gradient], [variable])
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))

    def apply_without_gradients(self, indices):
        """Does what Keras's `apply` does, in the step, for variables that have no gradient.

        That is their moving average, the correction of their momentum, and the state that belongs
        to no single variable.
        """
        if indices and momentum_correction.is_enabled(self._optimizer):
            variables = self._optimizer._trainable_variables
            momentum_correction.correct(self._optimizer, [variables[each] for each in indices])
        if not self._optimizer.use_ema and not self._shared_state:
            return
        with self._showing(self._lists_of(indices)):
            self._optimizer._backend_apply_gradients([], [])

    def _lists_of(self, indices):
        names = ["_trainable_variables"]
        if self._optimizer.use_ema:
            names.append("_model_variables_moving_average")
        lists = {name: vars(self._optimizer)[name] for name in names}
        return {name: [values[index] for index in indices] for name, values in lists.items()}

    @contextlib.contextmanager
    def _showing(self, attributes):
        before = self.shown
        self._thread.shown = attributes
        try:
            yield
        finally:
            self._thread.shown = before


def update_each_variable(optimizer, *arguments):
    """Keras's `_backend_update_step` without what optimizers such as Nadam do once for a step."""
    keras.optimizers.Optimizer._backend_update_step(optimizer, *arguments)
