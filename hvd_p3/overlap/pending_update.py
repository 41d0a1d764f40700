"""One variable's update that may still be on its way, and the guard that applies it in time."""

import contextlib
import threading
import weakref

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    CondBranchFuncGraph,
    ControlFlowFuncGraph,
)

from hvd_p3 import ops


class PendingUpdate:
    """The update of one variable: pushed at the end of a step, applied before the next read.

    Call `guard` before anything reads or writes the variable or the optimizer's state for it. When
    a function is traced it adds `cond(pending, pull and apply, nothing)` to the graph, once per
    graph; eagerly it applies at once. TensorFlow orders later reads of the variable after the
    guard, since both take the variable's resource.

    Args:
        variable: `tf.Variable`.
        slot: `ops.Slot` of the variable.
        context_dtypes: List of `tf.DType`s, of the tensors pushed with each gradient.
        update: Function of (reduced gradient, context) that updates the variable and the state.
    """

    def __init__(self, variable, slot, context_dtypes, update):
        self._variable = variable
        self._slot = slot
        self._context_dtypes = context_dtypes
        self._update = update
        # Graphs in which no update can be pending after the guard that they have already.
        self._guarded = weakref.WeakSet()
        self._used_unguarded = weakref.WeakSet()
        self._ops_at_push = weakref.WeakKeyDictionary()  # graph -> number of ops at the last push
        self._thread = threading.local()

    def guard(self):
        """Makes sure that what follows in the program sees the updated variable."""
        if getattr(self._thread, "suspended", False):
            return
        if not tf.inside_function():
            if ops.is_pending(self._slot):
                self._apply()
            return
        graph = tf.compat.v1.get_default_graph()
        if self.is_guarded(graph):
            return
        if self.was_used_unguarded(graph):
            self._used_unguarded.add(graph)
        self._guarded.add(graph)
        if not isinstance(graph, ControlFlowFuncGraph):
            # The last op made so far is what the forward pass computed before this variable.
            made = graph.get_operations()
            ops.note_arrival([self._slot], after=made[-1:])
        with record.stop_recording():
            tf.cond(ops.is_pending(self._slot), self._apply, lambda: None)

    def is_guarded(self, graph):
        """Whether no update can be pending at this point of the graph."""
        # A branch runs once, after its enclosing graph's guard. A loop's body runs again, after
        # what the body itself may push, and another function may run anywhere: these need a guard
        # of their own.
        while graph not in self._guarded:
            if not isinstance(graph, CondBranchFuncGraph):
                return False
            graph = graph.outer_graph
        return True

    def was_used_unguarded(self, graph):
        """Whether the graph uses the variable at a point where an update may be pending.

        That is the doing of code that holds the raw `tf.Variable`.
        """
        if graph in self._used_unguarded:
            return True
        if self.is_guarded(graph):
            return False
        users = graph.capture(self._variable.handle).consumers()
        new = {op.name for op in graph.get_operations()[self._ops_at_push.get(graph, 0) :]}
        return any(op.name in new for op in users)

    def push(self, gradient, context, tensor_handle):
        """Starts the reduction of this step's gradient. Guard first: one update can be pending."""
        ops.push(self._slot, gradient, context, tensor_handle)
        if tf.inside_function():
            graph = tf.compat.v1.get_default_graph()
            self._ops_at_push[graph] = len(graph.get_operations())
            while graph is not None:
                self._guarded.discard(graph)
                graph = getattr(graph, "outer_graph", None)

    @contextlib.contextmanager
    def suspended(self):
        """A context in which this thread's `guard` does nothing."""
        before = getattr(self._thread, "suspended", False)
        self._thread.suspended = True
        try:
            yield
        finally:
            self._thread.suspended = before

    def _apply(self):
        with self.suspended():
            gradient, context = ops.pull(
                self._slot, self._variable.dtype, self._variable.shape, self._context_dtypes
            )
            self._update(gradient, context)
