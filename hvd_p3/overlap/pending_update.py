"""One variable's update that may still be on its way, and the guard that applies it in time."""

import contextlib
import threading
import weakref

import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from tensorflow.python.eager import context, record
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    CondBranchFuncGraph,
    ControlFlowFuncGraph,
)

from hvd_p3 import ops
from hvd_p3.overlap import exporting
from hvd_p3.variables import resource_of


class PendingUpdate:
    """The update of one variable: pushed at the end of a step, applied before the next read.

    Call `guard` before anything reads or writes the variable or the optimizer's state for it. When
    a function is traced it adds `cond(pending, pull and apply, nothing)` to the graph; eagerly it
    applies at once. TensorFlow orders later reads of the variable after the guard, since both take
    the variable's resource.

    One thread at a time may trace or read eagerly: the update runs after the pull, so another
    thread could read in between.

    A guard serves the rest of its graph until another op takes the slot: a push, or a call of a
    function or a loop in which there may be one.

    Args:
        index: int. Index of the variable in its optimizer's list.
        variable: `tf.Variable`.
        slot: `ops.Slot` of the variable.
        late_updates: `LateUpdates` of the optimizer.
        wire_format: `compression.WireFormat` of the variable's gradient.
        arrivals: `arrival_points.ArrivalPoints` of the optimizer.
    """

    def __init__(self, index, variable, slot, late_updates, wire_format, arrivals):
        self._index = index
        self._variable = variable
        self._slot = slot
        self._late_updates = late_updates
        self._wire_format = wire_format
        self._arrivals = arrivals
        # graph -> number of ops that took the slot when the last guard was made
        self._slot_users_at_guard = weakref.WeakKeyDictionary()
        self._used_unguarded = False
        self._thread = threading.local()

    def guard(self):
        """Makes sure that what follows in the program sees the updated variable."""
        if getattr(self._thread, "suspended", False) or in_symbolic_scope():
            return
        if tf.executing_eagerly():
            if ops.is_pending(self._slot):
                with record.stop_recording():
                    self._apply()
            ops.confirm(self._slot)
            return
        graph = tf.compat.v1.get_default_graph()
        if isinstance(graph, FuncGraph) and self._is_guarded(graph):
            return
        if not isinstance(graph, FuncGraph) or exporting.is_exporting():
            # The exported program stands alone: it gets the updated weights and no guard.
            with context.eager_mode():
                self.guard()
            return
        self._note_unguarded_use(graph)
        not_before = []
        if not isinstance(graph, ControlFlowFuncGraph):
            not_before = self._arrivals.arrive(graph, self._index)
        with record.stop_recording(), tf.control_dependencies(not_before):
            tf.cond(ops.is_pending(self._slot), self._apply, lambda: None)
        self._slot_users_at_guard[graph] = len(_users(graph, self._slot.handle))

    def has_guard_in(self, graph):
        """Whether a traced function, or one that it calls, takes the slot, which guards do."""
        return any(tensor is self._slot.handle for tensor in graph.external_captures)

    def was_used_unguarded(self):
        """Whether a traced function used the variable where an update may be pending.

        That is the doing of code that has kept the variable's handle.
        """
        graph = tf.compat.v1.get_default_graph()
        if not tf.executing_eagerly() and not self._is_guarded(graph):
            self._note_unguarded_use(graph)
        return self._used_unguarded

    def push(self, gradient, step_context, tensor_handle):
        """Starts the reduction of this step's gradient. Guard first: one update can be pending."""
        version = self._late_updates.version
        sent = self._wire_format.compress(gradient)
        ops.push(self._slot, sent, step_context, tensor_handle, version)

    @contextlib.contextmanager
    def suspended(self):
        """A context in which this thread's `guard` does nothing."""
        before = getattr(self._thread, "suspended", False)
        self._thread.suspended = True
        try:
            yield
        finally:
            self._thread.suspended = before

    def _is_guarded(self, graph):
        """Whether no update can be pending at this point of the graph."""
        while True:
            users = len(_users(graph, self._slot.handle))
            if graph in self._slot_users_at_guard:
                return self._slot_users_at_guard[graph] == users
            # A branch runs once, after what its enclosing graph has guarded. A loop's body runs
            # again after what it pushes itself, and another function may run anywhere.
            if users > 0 or not isinstance(graph, CondBranchFuncGraph):
                return False
            graph = graph.outer_graph

    def _note_unguarded_use(self, graph):
        """Looks for ops that took the variable, but not the slot, since the last guard was lost.

        An op that takes both contains a guard, or a push, itself.
        """
        users = _users(graph, resource_of(self._variable))
        if not users:
            return
        slot_users = _users(graph, self._slot.handle)
        numbers = {op.name: number for number, op in enumerate(graph.get_operations())}
        lost_at = -1
        if graph in self._slot_users_at_guard:
            since_guard = slot_users[self._slot_users_at_guard[graph] :]
            lost_at = min(numbers[op.name] for op in since_guard)
        with_slot = {op.name for op in slot_users}
        if any(op.name not in with_slot and numbers[op.name] > lost_at for op in users):
            self._used_unguarded = True

    def _apply(self):
        with self.suspended(), _no_autocast():
            # A graph has the hyper-parameters of its own trace; eagerly there is a choice.
            version = ops.ANY_VERSION if tf.executing_eagerly() else self._late_updates.version
            reduced, step_context, pushed_version = ops.pull(
                self._slot,
                self._wire_format.dtype,
                self._wire_format.shape,
                self._late_updates.context_specs,
                keep_failure=True,
                version=version,
            )
            if version == ops.ANY_VERSION:
                version = int(pushed_version)
            gradient = self._wire_format.decompress(reduced)
            self._late_updates.apply(self._index, gradient, step_context, version)


@contextlib.contextmanager
def _no_autocast():
    """A context outside of all layers: within one of mixed precision, Keras casts what is read.

    `AutocastScope(None)` does not do: in it Keras variables of float64 say that they are float32.
    """
    scope = global_state.get_global_attribute("autocast_scope")
    global_state.set_global_attribute("autocast_scope", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("autocast_scope", scope)


def _users(graph, handle):
    """The ops of a graph that take a resource from outside it, in the order of their making."""
    placeholder = graph.function_captures.by_val_internal.get(id(handle))
    return [] if placeholder is None else placeholder.consumers()
