"""What a distributed optimizer knows, and whether its steps can be overlapped."""

import weakref

import keras
import tensorflow as tf

from hvd_p3 import process
from hvd_p3.overlap import eligibility
from hvd_p3.overlap.late_update import LateUpdates
from hvd_p3.overlap.overlapped_updates import OverlappedUpdates
from hvd_p3.variables import native_variable, path_of

_NO_OVERLAP = {
    process.NOT_NEEDED: "one rank has nothing to overlap",
    process.HOROVOD: "Horovod runs on Gloo; launch with horovodrun --mpi",
}


class DistributedState:
    """What a distributed optimizer has beyond its Keras class.

    Args:
        optimizer: The optimizer.
        wrapped_class: The Keras class that it was before it was distributed.
        reducer: `GradientReducer`.
        aggregation: `LocalAggregation`, or `None` if each backward pass is an update.
        local_variables: List of TensorFlow variables whose gradients are not reduced. Grows.
    """

    def __init__(self, optimizer, wrapped_class, reducer, aggregation, local_variables):
        self.optimizer = optimizer
        self.wrapped_class = wrapped_class
        self.reducer = reducer
        self.aggregation = aggregation
        self.local_variables = local_variables
        self.wire_formats = None  # list of WireFormat, as soon as late_updates
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
        variables = self.optimizer._trainable_variables
        reason = eligibility.reason_for_immediate_mode(self.optimizer, self.wrapped_class)
        if reason is not None:
            return reason
        wire_formats = self.reducer.wire_formats(variables)
        reason = self.reducer.reason_for_immediate_mode(wire_formats, variables)
        if reason is not None:
            return reason
        self.reducer.build(variables)
        self.wire_formats = wire_formats
        self.late_updates = LateUpdates(self.optimizer)
        self.overlapped = OverlappedUpdates(
            self.optimizer, self.reducer, self.late_updates, wire_formats
        )
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
        reason = eligibility.reason_for_immediate_mode(
            self.optimizer, self.wrapped_class
        ) or self.reducer.reason_for_immediate_mode(
            self.wire_formats, self.optimizer._trainable_variables
        )
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

    def prepare_reduction(self):
        """Prepares the reducer for the step that is being traced or run."""
        variables = self.optimizer._trainable_variables
        self.reducer.build(variables)
        self.reducer.record_forward_order(variables)
        local = {id(variable) for variable in self.local_variables}
        self.reducer.local_indices = {
            index
            for index, variable in enumerate(variables)
            if id(native_variable(variable)) in local
        }
        if self.reducer.local_indices:
            self._check_local_gradients_are_by_themselves()

    def _check_local_gradients_are_by_themselves(self):
        """Gradients of local variables differ between ranks, so nothing that is done with those of
        the others may depend on them."""
        reason = None
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            reason = "LossScaleOptimizer skips steps by all gradients"
        elif self.optimizer.global_clipnorm:
            reason = "global_clipnorm scales all gradients by the norm of all"
        if reason is not None:
            raise ValueError(
                f"{reason}, and those of local variables differ between ranks, so the ranks' "
                "weights would drift apart. Use one of the two: local variables "
                "(register_local_var, PartialDistributedOptimizer), or that."
            )
