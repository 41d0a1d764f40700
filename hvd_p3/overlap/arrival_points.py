"""Where the forward pass comes to the variables of a layer."""

import weakref

from hvd_p3.variables import path_of

# An update that has arrived is applied when the forward pass is at most so many layers before its
# variable. Without a bound, a step would begin with the updates of all layers whose gradients came
# while the backward pass ran, and the first layers would wait for a processor. Too few layers, and
# a layer would wait for its own update. Measured in docs/performance.md.
LAYERS_AHEAD = 8


class ArrivalPoints:
    """The points of all variables of an optimizer.

    All variables of a layer share the point where the first of them is read, with which the layer
    begins. TensorFlow fuses what a layer computes with one variable after the other, such as a
    product and the sum with the bias, unless something else asks for what lies between.
    """

    def __init__(self):
        # graph -> (path of the layer, name of the op made before it); ops would keep the graph
        self.last = weakref.WeakKeyDictionary()
        # graph -> names of the ops that note the arrival at each layer, in their order
        self.noted = weakref.WeakKeyDictionary()

    def of(self, variable):
        """Returns the `ArrivalPoint` of a variable, of Keras or TensorFlow."""
        # By the path: variables of models that are built late have short names.
        return ArrivalPoint(self, path_of(variable).rpartition("/")[0])


class ArrivalPoint:
    """What the forward pass has computed when it comes to a variable; see `ArrivalPoints`.

    Args:
        points: `ArrivalPoints`.
        layer: str, path of the variable's layer. Empty if there is none.
    """

    def __init__(self, points, layer):
        self._points = points
        self._layer = layer

    def found_in(self, graph):
        """Returns what exists when the program comes to the variable.

        Args:
            graph: Graph that is being traced, in which the variable is read next.

        Returns:
            List of one tensor or operation of the graph, or of none at its beginning.
        """
        layer, name = self._points.last.get(graph, (None, None))
        if not self._layer or self._layer != layer:
            # The last op made so far is what the forward pass has computed before this layer.
            name = next((op.name for op in graph.get_operations()[-1:]), None)
            self._points.last[graph] = (self._layer, name)
            self._points.noted.setdefault(graph, []).append(None)
        if name is None:
            return []
        op = graph.get_operation_by_name(name)
        return list(op.outputs[:1]) or [op]

    def not_before(self, graph, arrivals):
        """Returns what the variable's update is to wait for, besides its gradient.

        Program order guards against waiting in a circle: what notes the arrival at a layer needs
        only what was traced before it.

        Args:
            graph: Graph that is being traced, after `found_in`.
            arrivals: List of the operations that note the arrival at the variable.

        Returns:
            List of the operation that notes the arrival `LAYERS_AHEAD` layers before, or of none.
        """
        noted = self._points.noted[graph]
        if noted[-1] is None:
            noted[-1] = arrivals[0].name
        if len(noted) <= LAYERS_AHEAD:
            return []
        return [graph.get_operation_by_name(noted[-1 - LAYERS_AHEAD])]

    def forget(self, graph):
        """Call where a gradient is pushed: what is read after it is read anew."""
        self._points.last.pop(graph, None)
        self._points.noted.pop(graph, None)
