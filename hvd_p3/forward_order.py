"""Priorities: in which order the forward pass first uses the variables.

When a training step is traced, TensorFlow creates the ops of the forward pass in the order of the
program. The first op in the graph that takes a variable's resource is its first use, whether it
reads the variable directly or is a loop, a branch or a function that does. So the order is right
for functional graphs, shared layers and subclassed models alike.

Method: Priority-based Parameter Propagation (Jayarajan et al., 2019), section 4.
"""

import tensorflow as tf

from hvd_p3.variables import path_of, resource_of


def first_uses(variables):
    """Returns, for each variable, the number of the first op that uses it in the current graph.

    Args:
        variables: List of `tf.Variable`s or tensors.

    Returns:
        A list of int, `None` for variables that no op uses; or `None` instead of the list when no
        function is being traced.
    """
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    numbers = {op.name: number for number, op in enumerate(graph.get_operations())}
    uses = []
    for variable in variables:
        resource = resource_of(variable) if isinstance(variable, tf.Variable) else variable
        consumers = graph.capture(resource).consumers()
        uses.append(min((numbers[op.name] for op in consumers), default=None))
    return uses


def priorities(uses, owners):
    """Turns first uses into priorities.

    Variables that one layer uses next to each other, such as a kernel and its bias, get the same
    priority: the layer needs both, and equal priorities can share a slice.

    Args:
        uses: List from `first_uses`, or `None`: then the order of the list counts.
        owners: List of str, the path of the layer that owns each variable.

    Returns:
        A list of int from 0, the most urgent. Unused variables come last.
    """
    if uses is None:
        uses = list(range(len(owners)))
    unused = max((use for use in uses if use is not None), default=0) + 1
    order = sorted(
        range(len(uses)), key=lambda index: (unused if uses[index] is None else uses[index], index)
    )
    result = [0] * len(uses)
    position = -1
    previous_owner = object()
    for index in order:
        if owners[index] != previous_owner:
            position += 1
            previous_owner = owners[index]
        result[index] = position
    return result


def owner(variable):
    """Returns the path of the layer that owns a Keras or TensorFlow variable."""
    path = path_of(variable)
    return path.rpartition("/")[0] or path
