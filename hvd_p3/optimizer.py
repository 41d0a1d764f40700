"""`DistributedOptimizer`: a Keras optimizer whose gradients are reduced over all ranks."""

import weakref

import horovod.tensorflow as horovod
import keras
import tensorflow as tf

from hvd_p3 import call_stack, notices, process, subclassing
from hvd_p3.overlap import eligibility
from hvd_p3.overlap.late_update import LEARNING_RATE, LateUpdates, update_each_variable
from hvd_p3.overlap.overlapped_updates import OverlappedUpdates
from hvd_p3.reduction import GradientReducer, check_arguments
from hvd_p3.sparse_gradients import values_of
from hvd_p3.variables import path_of

_STATE = "_hvd_p3_state"

_NO_OVERLAP = {
    process.NOT_NEEDED: "one rank has nothing to overlap",
    process.HOROVOD: "Horovod runs on Gloo; launch with horovodrun --mpi",
}


def DistributedOptimizer(
    optimizer,
    name=None,
    sparse_as_dense=False,
    op=horovod.Average,
    gradient_predivide_factor=1.0,
):
    """Makes a Keras optimizer reduce its gradients over all ranks before it applies them.

    The optimizer itself is changed and returned: it stays an instance of its class with its state
    and configuration. Gradients are reduced within the step (immediate mode) until
    `hvd_p3.callbacks.P3Callback`, or `turn_overlap_on` in a loop of your own, turns overlapped mode
    on. The optimizer has three more methods then: `turn_overlap_on()`, `is_overlapped()` and
    `settle()`.

    Method: Priority-based Parameter Propagation (Jayarajan et al., 2019), section 4.

    Args:
        optimizer: `keras.optimizers.Optimizer` that is not distributed yet.
        name: Optional str, the same on all ranks. Part of the tensors' group in errors.
        sparse_as_dense: bool. Whether sparse gradients (`tf.IndexedSlices`), such as those of
            embeddings, are made dense. Dense gradients are overlapped. Sparse ones are reduced
            within the step: ranks exchange their rows, or reduce the dense gradient where that is
            smaller.
        op: `hvd_p3.Average` (default) or `hvd_p3.Sum`.
        gradient_predivide_factor: float > 0. Gradients are divided by it before the sum and
            multiplied by it after, to keep float16 sums in range. Needs `op=hvd_p3.Average`.

    Returns:
        The same optimizer.

    Raises:
        TypeError: If `optimizer` is no Keras optimizer.
        ValueError: If hvd_p3 is not initialised, the optimizer is distributed already, or `op` or
            `gradient_predivide_factor` is out of range.

    Example:

    ```python
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd_p3.size()))
    model.compile(optimizer, loss="mse")
    ```
    """
    process.current()
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            "DistributedOptimizer needs an instance of a Keras 3 optimizer, for example "
            f"keras.optimizers.SGD(0.01). Received: {optimizer!r} of type {type(optimizer)}"
        )
    if is_distributed(optimizer):
        raise ValueError(f"Optimizer '{optimizer.name}' is distributed already; wrap it once.")
    check_arguments(op, gradient_predivide_factor)
    reducer = GradientReducer(
        name or "optimizer", op, gradient_predivide_factor, bool(sparse_as_dense)
    )
    make_distributed(optimizer, reducer)
    return optimizer


def is_distributed(optimizer):
    """Returns whether `DistributedOptimizer` has wrapped this optimizer."""
    return isinstance(optimizer, _DistributedMethods) and _STATE in vars(optimizer)


class _DistributedState:
    """What a distributed optimizer has beyond its Keras class."""

    def __init__(self, optimizer, wrapped_class, reducer):
        self.optimizer = optimizer
        self.wrapped_class = wrapped_class
        self.reducer = reducer
        self.late_updates = None  # LateUpdates once overlapped mode is on
        self.overlapped = None  # OverlappedUpdates, as soon as late_updates
        self.unguarded_use = None  # str, once a step has used a variable without a guard
        self.is_eligible = True
        self.train_function = None  # weak reference, see expect_trace_of

    def turn_overlap_on(self):
        """Turns overlapped mode on; returns why not, or `None`."""
        if self.overlapped is not None:
            return self.unguarded_use
        if not self.optimizer.built or not tf.executing_eagerly():
            raise ValueError(
                "turn_overlap_on needs a built optimizer, and must be called before the training "
                "step is traced. Call optimizer.build(model.trainable_variables), then "
                "optimizer.turn_overlap_on(), outside of any tf.function. Received: optimizer "
                f"'{self.optimizer.name}', built={self.optimizer.built}"
            )
        current = process.current()
        if current.reduction != process.ENGINE:
            return _NO_OVERLAP[current.reduction]
        if not current.config.overlap:
            return "the setting overlap (HVD_P3_OVERLAP) is off"
        reason = eligibility.reason_for_immediate_mode(self.optimizer, self.wrapped_class)
        if reason is not None:
            return reason
        self.reducer.build(self.optimizer._trainable_variables)
        self.late_updates = LateUpdates(self.optimizer)
        self.overlapped = OverlappedUpdates(self.optimizer, self.reducer, self.late_updates)
        return None

    def expect_trace_of(self, train_function):
        """Prepares for the trace of a train function, unless it is the one of the last call.

        A new one is traced with the hyper-parameters of now, for example another `momentum`.
        """
        if self.train_function is None or self.train_function() is not train_function:
            self.train_function = weakref.ref(train_function)
            self.is_eligible = True
            self.overlapped.adopt_hyper_parameters()

    def leave_overlap_if_needed(self):
        """Finds out whether the step that is being traced or run can be overlapped.

        Returns:
            `None`, or a str that says why not. Then the optimizer counts as not overlapped; if the
            step has used a variable without a guard, for good.
        """
        if tf.executing_eagerly():
            # No graph shows whether the step has used a kept handle.
            return "the training step runs eagerly; use a tf.function, or run_eagerly=False"
        reason = eligibility.reason_for_immediate_mode(self.optimizer, self.wrapped_class)
        if reason is None:
            change = self.late_updates.changed_hyper_parameter()
            if change is not None:
                # What this trace has guarded so far was traced with the earlier value.
                reason = f"{change} after overlapped mode was turned on"
        self.is_eligible = reason is None
        if reason is not None:
            return reason
        unguarded = self.overlapped.unguarded_use()
        if unguarded is not None:
            self.unguarded_use = (
                f"the training step uses variable '{path_of(unguarded)}' in a way that could read "
                "it before it is updated: through a handle that was kept from before"
            )
        return self.unguarded_use


def state_of(optimizer):
    """The `_DistributedState` of a distributed optimizer."""
    return vars(optimizer)[_STATE]


def make_distributed(optimizer, reducer):
    """Changes an optimizer in place, so that it reduces its gradients with `reducer`."""
    wrapped_class = type(optimizer)
    subclassing.mix_in(optimizer, _DistributedMethods)
    optimizer.__dict__[_STATE] = _DistributedState(optimizer, wrapped_class, reducer)


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
        if state is None or process.current().reduction == process.NOT_NEEDED:
            return super().apply(grads, trainable_variables)
        if _is_inside_distributed_loss_scaling(self):
            return super().apply(grads, trainable_variables)
        grads = list(grads)
        if trainable_variables is None:
            trainable_variables = self._trainable_variables
        trainable_variables = list(trainable_variables)
        if not self.built:
            with keras.name_scope(self.name, caller=self):
                self.build(trainable_variables)
            self.built = True
        if all(gradient is None for gradient in grads):
            return super().apply(grads, trainable_variables)  # Keras explains the error
        self._check_variables_are_known(trainable_variables)
        indices = [self._get_index(variable) for variable in trainable_variables]
        gradients = {
            index: gradient
            for index, gradient in zip(indices, grads, strict=True)
            if gradient is not None
        }
        state.reducer.build(self._trainable_variables)
        state.reducer.record_forward_order(self._trainable_variables)
        if state.overlapped is not None:
            reason = state.leave_overlap_if_needed()
            if reason is None:
                self._filter_empty_gradients(grads, trainable_variables)  # for Keras's warning
                state.overlapped.push(gradients)
                with tf.control_dependencies(values_of(gradients.values())):
                    self._iterations.assign_add(1)
                return None
            notices.train_immediately(reason)
            state.overlapped.guard_all()
        reduced = state.reducer.reduce(gradients)
        # Keras's train function runs once more at the end of a dataset of unknown length, and fails
        # for lack of data while what does not need data still runs. Such a step must not count, or
        # it would count on some ranks only.
        with tf.control_dependencies(values_of(gradients.values())):
            return super().apply([reduced.get(index) for index in indices], trainable_variables)

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
