"""Overlapped mode of one optimizer: pushes each step's gradients and settles the updates."""

import tensorflow as tf

from hvd_p3 import reduction
from hvd_p3.overlap import eligibility, guarded_function, guarded_variable
from hvd_p3.overlap.pending_update import PendingUpdate


class OverlappedUpdates:
    """The pending updates of an optimizer's variables.

    Making one guards the variables and the optimizer's state from then on.

    Args:
        optimizer: A built, distributed optimizer that `eligibility` accepts.
        reducer: Its `reduction.GradientReducer`.
        step_context: Function without arguments that returns the tensors to keep with each
            gradient: the hyper-parameters of the step.
        update: Function of (variable, reduced gradient, step context) that applies one update.
    """

    def __init__(self, optimizer, reducer, step_context, update):
        self._variables = optimizer._trainable_variables
        self._reducer = reducer
        self._step_context = step_context
        with tf.init_scope():
            context_dtypes = [tensor.dtype for tensor in step_context()]
        self._pending = []
        guards = []
        states = eligibility.state_of_each_variable(optimizer)
        for variable, state, slot in zip(self._variables, states, reducer.slots, strict=True):
            pending = PendingUpdate(
                reduction.native_variable(variable),
                slot,
                context_dtypes,
                lambda gradient, context, variable=variable: update(variable, gradient, context),
            )
            guards += [
                (reduction.native_variable(guarded), pending) for guarded in (variable, *state)
            ]
            self._pending.append(pending)
        for guarded, pending in guards:
            guarded_variable.attach(guarded, pending)
        guarded_function.attach_to_traced_functions(guards)

    def unguarded_use(self):
        """Returns a variable that the function being traced has used without a guard, or `None`.

        Such a function could read a stale value.
        """
        for variable, pending in zip(self._variables, self._pending, strict=True):
            if pending.was_used_unguarded():
                return variable
        return None

    def push(self, gradients):
        """Pushes the gradients of a step.

        Args:
            gradients: dict of variable index to dense gradient tensor.
        """
        # Variables that this step has not read may have updates of an earlier step pending.
        self.guard_all()
        handles = self._reducer.handles(gradients)
        context = self._step_context()
        for index, gradient in gradients.items():
            self._pending[index].push(gradient, context, handles[index])

    def guard_all(self):
        """Applies all pending updates; in a function being traced, where they are not yet."""
        for pending in self._pending:
            pending.guard()
