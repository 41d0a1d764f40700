"""Where the forward pass comes to the variables of a layer."""

import dataclasses
import weakref

from hvd_p3 import ops
from hvd_p3.variables import path_of

# An update that has arrived is applied when the forward pass is at most so many layers before its
# variable. Without a bound, a step would begin with the updates of all layers whose gradients came
# while the backward pass ran, and the first layers would wait for a processor. Too few layers, and
# a layer would wait for its own update. Measured in docs/performance.md.
LAYERS_AHEAD = 8

# The forward pass of a deeper model is looked at before every second layer, every third, ... At
# each point TensorFlow hands what comes next to another thread, which costs a layer up to a tenth
# of a millisecond. Measured in docs/performance.md.
MOST_POINTS = 32


@dataclasses.dataclass
class _ForwardPass:
    """What has been traced of a forward pass in one graph. Names, since ops would keep the graph.

    Args:
        layer: str, path of the last layer it came to.
        before: Name of the last op made before that layer, or `None` at the graph's beginning.
        points: List, for each layer it came to, of a dict of device to the name of the operation
            that notes the arrival there.
    """

    layer: str = ""
    before: str | None = None
    points: list = dataclasses.field(default_factory=list)


class ArrivalPoints:
    """The points of all variables of an optimizer.

    All variables of a layer share the point where the first of them is read, with which the layer
    begins. TensorFlow fuses what a layer computes with one variable after the other, such as a
    product and the sum with the bias, unless something else asks for what lies between. In a model
    of more than `MOST_POINTS` layers, some layers that follow each other share a point.

    Args:
        variables: The optimizer's variables, of Keras or TensorFlow.
        slots: List of their `ops.Slot`s.
    """

    def __init__(self, variables, slots):
        # By the path: variables of models that are built late have short names.
        self._layers = [path_of(variable).rpartition("/")[0] for variable in variables]
        self._slots = slots
        # One that belongs to no layer counts as a layer of its own.
        layers = len({layer or index for index, layer in enumerate(self._layers)})
        on_host = all("GPU" not in slot.device for slot in slots)
        # On a GPU a result that is not complete counts from the arrival on: too early, and the
        # stream would wait before it has computed the layers between. No thread waits there.
        self._layers_per_point = -(-layers // MOST_POINTS) if on_host else 1
        self._passes = weakref.WeakKeyDictionary()  # graph -> _ForwardPass

    def arrive(self, graph, index):
        """Notes, whenever the graph runs, when its forward pass comes to a variable.

        Program order guards against waiting in a circle: what notes the arrival at a layer needs
        only what was traced before it.

        Args:
            graph: Graph that is being traced, in which the variable is read next.
            index: int. Index of the variable.

        Returns:
            List of the operation for which the variable's update is to wait: it notes the arrival
            `LAYERS_AHEAD` layers before, or a little earlier. Empty if there is none.
        """
        current = self._passes.setdefault(graph, _ForwardPass())
        layer, slot = self._layers[index], self._slots[index]
        if not current.points or not layer or layer != current.layer:
            current.layer = layer
            current.before = next((op.name for op in graph.get_operations()[-1:]), None)
            begins = len(current.points) % self._layers_per_point == 0
            current.points.append({} if begins else current.points[-1])
        here = current.points[-1]
        if slot.device in here:
            ops.add_to_arrival(graph.get_operation_by_name(here[slot.device]), slot)
        else:
            after = _computed_by(graph, current.before)
            here[slot.device] = ops.note_arrival([slot], after)[0].name
        if len(current.points) <= LAYERS_AHEAD:
            return []
        earlier = current.points[-1 - LAYERS_AHEAD]
        return [graph.get_operation_by_name(next(iter(earlier.values())))]

    def forget(self, graph):
        """Call where a gradient is pushed: what is read after it is read anew."""
        self._passes.pop(graph, None)


def _computed_by(graph, name):
    """Returns what an op has computed, or the op itself if that is nothing: a list of one."""
    if name is None:
        return []
    op = graph.get_operation_by_name(name)
    return list(op.outputs[:1]) or [op]
