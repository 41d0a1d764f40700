"""Overlapped mode of one optimizer: pushes each step's gradients and settles the updates."""

import functools

import tensorflow as tf

from hvd_p3 import xla
from hvd_p3.local_aggregation import in_this_branch, run_if
from hvd_p3.overlap import eligibility, guarded_function, guarded_variable
from hvd_p3.overlap.arrival_points import ArrivalPoints
from hvd_p3.overlap.pending_update import PendingUpdate
from hvd_p3.sparse_gradients import values_of
from hvd_p3.variables import native_variable


class OverlappedUpdates:
    """The pending updates of an optimizer's variables.

    Making one guards the variables and the optimizer's state from then on.

    Args:
        optimizer: A built, distributed optimizer that `eligibility` accepts.
        reducer: Its `reduction.GradientReducer`.
        late_updates: Its `LateUpdates`.
        wire_formats: List, for each trainable variable, of its `compression.WireFormat`.
    """

    def __init__(self, optimizer, reducer, late_updates, wire_formats):
        self._variables = optimizer._trainable_variables
        self._reducer = reducer
        self._late_updates = late_updates
        self._wire_formats = wire_formats
        self._pending = []
        pending_update_of = []
        self._arrivals = ArrivalPoints(self._variables, reducer.slots)
        states, _ = eligibility.state_of_each_variable(optimizer)
        for index, (variable, state) in enumerate(zip(self._variables, states, strict=True)):
            native = native_variable(variable)
            pending = PendingUpdate(
                index,
                native,
                reducer.slots[index],
                late_updates,
                wire_formats[index],
                self._arrivals,
            )
            pending_update_of.append((native, pending))
            pending_update_of += [(native_variable(each), pending) for each in state]
            self._pending.append(pending)
        for guarded, pending in pending_update_of:
            guarded_variable.attach(guarded, pending)
        self._pending_update_of = pending_update_of
        guarded_function.attach_to_traced_functions(pending_update_of)

    def adopt_hyper_parameters(self):
        """Makes functions traced from now on use the hyper-parameters of now; settles first."""
        self.guard_all()
        if self._late_updates.adopt_hyper_parameters():
            guarded_function.attach_to_traced_functions(self._pending_update_of)

    def unguarded_use(self):
        """Returns a variable that the function being traced has used without a guard, or `None`.

        Such a function could read a stale value.
        """
        for variable, pending in zip(self._variables, self._pending, strict=True):
            if pending.was_used_unguarded():
                return variable
        return None

    def push(self, gradients, condition=None):
        """Pushes the gradients of a step.

        Args:
            gradients: dict of variable index to tensor or `tf.IndexedSlices`. Sparse gradients are
                reduced and applied within the step, those of local variables applied.
            condition: Optional bool tensor, the same on all ranks: whether the step updates.
        """
        xla.check_not_compiling()
        # Variables that this step has not read may have updates of an earlier step pending.
        self.guard_all()
        self._arrivals.forget(tf.compat.v1.get_default_graph())
        dense, sparse, local = self._reducer.split(gradients)
        sent = {index: self._wire_formats[index] for index in dense}
        handles = self._reducer.handles(sent)
        without = [index for index in range(len(self._variables)) if index not in gradients]
        # What belongs to no gradient waits for the one that the backward pass computes first, so
        # that a step without data changes nothing.
        first = max(gradients, key=self._reducer.priorities.__getitem__)

        run_if(
            condition,
            lambda: self._late_updates.apply_without_gradients(without),
            after=values_of([gradients[first]]),
        )
        context = self._late_updates.context()
        run_if(condition, self._late_updates.context_taken, after=values_of([gradients[first]]))
        after = self._reducer.after_message(sent, dense)
        version = self._late_updates.version
        for index, gradient in dense.items():
            # A condition for each gradient, so that none waits for the others of the step.
            push = functools.partial(self._pending[index].push, gradient, context, handles[index])
            run_if(condition, push, after=after[index])

        def update(index, gradient):
            for own in in_this_branch({index: gradient}).values():
                self._late_updates.apply(index, own, context, version)

        within_the_step = {**self._reducer.reduce_sparse(sparse), **local}
        for index, gradient in within_the_step.items():
            update_one = functools.partial(update, index, gradient)
            run_if(condition, update_one, after=values_of([gradient]))

    def guard_all(self):
        """Applies all pending updates; in a function being traced, where they are not yet."""
        for pending in self._pending:
            pending.guard()
