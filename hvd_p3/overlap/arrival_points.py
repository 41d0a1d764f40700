"""Where the forward pass comes to the variables of a layer."""

import weakref


class ArrivalPoints:
    """Finds what the forward pass has computed when it comes to a variable.

    All variables of a layer share the point where the first of them is read, with which the layer
    begins. TensorFlow fuses what a layer computes with one variable after the other, such as a
    product and the sum with the bias, unless something else asks for what lies between.
    """

    def __init__(self):
        # graph -> (path of the layer, name of the op made before it); ops would keep the graph
        self._last = weakref.WeakKeyDictionary()

    def before(self, variable, graph):
        """Returns the tensor or the op that exists when the program comes to the variable.

        Args:
            variable: `tf.Variable` that is about to be read.
            graph: Graph that is being traced.

        Returns:
            List of one tensor or operation of the graph, or of none at its beginning.
        """
        layer, _, _ = variable.name.rpartition("/")
        known, name = self._last.get(graph, (None, None))
        if not layer or layer != known:
            # The last op made so far is what the forward pass has computed before this layer.
            name = next((op.name for op in graph.get_operations()[-1:]), None)
            self._last[graph] = (layer, name)
        if name is None:
            return []
        op = graph.get_operation_by_name(name)
        return list(op.outputs[:1]) or [op]
