"""The methods that make a Keras optimizer a distributed one."""

import keras
import tensorflow as tf

from hvd_p3 import call_stack, notices, process, subclassing
from hvd_p3.distributed_state import DistributedState
from hvd_p3.local_aggregation import in_this_branch
from hvd_p3.overlap.late_update import LEARNING_RATE, update_each_variable
from hvd_p3.sparse_gradients import values_of
from hvd_p3.variables import native_variable

_STATE = "_hvd_p3_state"


def is_distributed(optimizer):
    """Returns whether `DistributedOptimizer` has wrapped this optimizer."""
    return isinstance(optimizer, _DistributedMethods) and _STATE in vars(optimizer)


def state_of(optimizer):
    """The `DistributedState` of a distributed optimizer."""
    return vars(optimizer)[_STATE]


def class_of(optimizer):
    """The class of an optimizer, or the one that a distributed optimizer had before."""
    return next(
        each for each in type(optimizer).__mro__ if not issubclass(each, _DistributedMethods)
    )


def make_distributed(optimizer, reducer, aggregation, local_variables):
    """Changes an optimizer in place, so that it reduces its gradients.

    Args: see `DistributedState`.
    """
    wrapped_class = type(optimizer)
    subclassing.mix_in(optimizer, _DistributedMethods)
    optimizer.__dict__[_STATE] = DistributedState(
        optimizer, wrapped_class, reducer, aggregation, local_variables
    )


def _is_inside_distributed_loss_scaling(optimizer):
    """Whether a distributed LossScaleOptimizer around this optimizer is calling it.

    Raises `ValueError` if one that is not distributed is.
    """
    for caller in call_stack.owners():
        if (
            isinstance(caller, keras.optimizers.LossScaleOptimizer)
            and caller.inner_optimizer is optimizer
        ):
            if is_distributed(caller):
                return True
            raise ValueError(
                "A LossScaleOptimizer around a DistributedOptimizer would let each rank skip steps "
                "by its own gradients. Use hvd_p3.DistributedOptimizer("
                "keras.optimizers.LossScaleOptimizer(optimizer)), or train with "
                "hvd_p3.callbacks.P3Callback, which arranges it."
            )
    return False


def _count(iterations):
    iterations.assign_add(1)


def _shown(optimizer):
    """The attributes of the step whose update this thread applies late; empty outside of one."""
    state = object.__getattribute__(optimizer, "__dict__").get(_STATE)
    if state is None or state.late_updates is None:
        return {}
    return state.late_updates.shown or {}


class _DistributedMethods:
    """Mixed into the class of a distributed optimizer."""

    def apply(self, grads, trainable_variables=None):
        state = self.__dict__.get(_STATE)
        if state is None or (
            state.aggregation is None and process.current().reduction == process.NOT_NEEDED
        ):
            super().apply(grads, trainable_variables)
            return
        if _is_inside_distributed_loss_scaling(self):
            super().apply(grads, trainable_variables)
            return
        grads = list(grads)
        if trainable_variables is None:
            trainable_variables = self._trainable_variables
        trainable_variables = list(trainable_variables)
        if not self.built:
            with keras.name_scope(self.name, caller=self):
                self.build(trainable_variables)
            self.built = True
        if all(gradient is None for gradient in grads):
            super().apply(grads, trainable_variables)  # Keras explains the error
            return
        self._check_variables_are_known(trainable_variables)
        indices = [self._get_index(variable) for variable in trainable_variables]
        gradients = {
            index: gradient
            for index, gradient in zip(indices, grads, strict=True)
            if gradient is not None
        }
        state.prepare_reduction()
        is_overlapped = state.overlapped is not None
        if is_overlapped:
            reason = state.leave_overlap_if_needed()
            if reason is not None:
                is_overlapped = False
                notices.train_immediately(reason)
                state.overlapped.guard_all()
        completes_update = None
        if state.aggregation is not None:
            completes_update, gradients = state.aggregation.add(gradients)
        if is_overlapped:
            self._filter_empty_gradients(grads, trainable_variables)  # for Keras's warning
            state.overlapped.push(gradients, completes_update)
            with tf.control_dependencies(values_of(gradients.values())):
                self._iterations.assign_add(1)
            return
        keras_apply = super().apply

        def update(gradients):
            reduced = state.reducer.reduce(gradients)
            with tf.control_dependencies(values_of(gradients.values())):
                keras_apply([reduced.get(index) for index in indices], trainable_variables)

        # Keras's train function runs once more at the end of a dataset of unknown length, and fails
        # for lack of data while what does not need data still runs. Such a step must not count, or
        # it would count on some ranks only.
        if completes_update is None:
            update(gradients)
            return
        with tf.control_dependencies(values_of(gradients.values())):
            completes_update = tf.identity(completes_update)
        tf.cond(
            completes_update,
            lambda: update(in_this_branch(gradients)),
            lambda: _count(self.iterations),
        )

    def turn_overlap_on(self):
        """Turns overlapped mode on for functions traced from now on.

        Returns:
            `None`, or a str that says why this optimizer stays in immediate mode.

        Raises:
            ValueError: If the optimizer is not built, or a function is being traced.
        """
        return self.__dict__[_STATE].turn_overlap_on()

    def is_overlapped(self):
        """Returns whether overlapped mode is on."""
        state = self.__dict__[_STATE]
        return state.overlapped is not None and state.is_eligible and state.unguarded_use is None

    def register_local_var(self, var):
        """Keeps a variable local: its gradients are not reduced, and ranks may differ in it.

        Call before the training step is traced.

        Args:
            var: Keras or TensorFlow variable.

        Raises:
            TypeError: If `var` is something else.
        """
        if not isinstance(var, (keras.Variable, tf.Variable)):
            raise TypeError(
                "register_local_var needs a Keras or TensorFlow variable. "
                f"Received: {var!r} of type {type(var)}"
            )
        self.__dict__[_STATE].local_variables.append(native_variable(var))

    def settle(self):
        """Applies the updates that overlapped mode has not applied yet."""
        state = self.__dict__.get(_STATE)
        if state is not None and state.overlapped is not None:
            state.overlapped.guard_all()

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Makes an optimizer of the Keras class, not distributed, as `load_model` does."""
        wrapped_class = cls.__mro__[cls.__mro__.index(_DistributedMethods) + 1]
        return wrapped_class.from_config(config, custom_objects)

    # While this thread applies an update late, Keras's code must see the attributes of the step
    # to which the update belongs, whichever it reads; other threads see the optimizer as it is.
    def __getattribute__(self, name):
        shown = _shown(self)
        if name in shown:
            return shown[name]
        return super().__getattribute__(name)

    def _get_current_learning_rate(self):
        shown = _shown(self)
        if LEARNING_RATE in shown:
            return shown[LEARNING_RATE]
        return super()._get_current_learning_rate()

    def _backend_update_step(self, *arguments):
        if LEARNING_RATE in _shown(self):
            return update_each_variable(self, *arguments)
        return super()._backend_update_step(*arguments)

    def _get_index(self, variable):
        """The variable's position in the list with which the optimizer was built."""
        for index, known in enumerate(self._trainable_variables):
            if known is variable:
                return index
        return self._get_variable_index(variable)
