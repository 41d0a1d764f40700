"""What TensorFlow makes of the graph of a training step."""

import collections
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import hvd_p3
from hvd_p3 import ops
from hvd_p3.overlap import arrival_points
from hvd_p3.overlap.arrival_points import ArrivalPoints


def _fused_ops(overlapped, is_built_late):
    """How often each kind of fused op runs in a step of a model of a convolution and two layers."""
    layers = [
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(8, activation="tanh"),
        keras.layers.Dense(4),
    ]
    x, y = np.ones((2, 6, 6, 1), "float32"), np.ones((2, 4), "float32")
    model = keras.Sequential(layers if is_built_late else [keras.Input((6, 6, 1)), *layers])
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    callbacks = [hvd_p3.callbacks.P3Callback(verbose=0)] if overlapped else []
    model.fit(x, y, verbose=0, callbacks=callbacks)  # builds it
    assert model.optimizer.is_overlapped() == overlapped
    context.enable_run_metadata()
    try:
        model.train_on_batch(x, y)
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_run_metadata()
    hvd_p3.settle(model)
    assert any(node.op == "BiasAddGrad" for graph in graphs for node in graph.node)
    # By name, since a step may be recorded alone and as a part of what called it.
    fused = {
        node.name.removeprefix("StatefulPartitionedCall/"): (
            node.op,
            *node.attr["fused_ops"].list.s,
        )
        for graph in graphs
        for node in graph.node
        if "fused_ops" in node.attr
    }
    return collections.Counter(fused.values())


@pytest.mark.parametrize("is_built_late", [False, True])
def test_overlap_leaves_fusions(gated_engine, is_built_late):
    immediate = _fused_ops(False, is_built_late)
    if not immediate:
        pytest.skip("TensorFlow fuses nothing on this machine")
    assert _fused_ops(True, is_built_late) == immediate


def _arrivals_in(graph):
    """What each op that notes an arrival has as inputs, and for which slots."""
    return [
        (list(op.inputs), [name.decode() for name in op.get_attr("slot_names")])
        for op in graph.get_operations()
        if op.type == "HvdP3Arrival"
    ]


def test_variables_of_a_layer_share_the_point_before_it_until_a_push():
    layers = [keras.layers.Dense(2), keras.layers.Dense(2)]
    for layer in layers:
        layer.build((1, 2))
    variables = [*layers[0].variables, layers[1].kernel]
    slots = [ops.Slot(name) for name in ("kernel", "bias", "other")]
    points = ArrivalPoints(variables, slots)

    def program():
        graph = tf.compat.v1.get_default_graph()
        points.arrive(graph, 0)
        before = tf.ones([1, 2])
        points.arrive(graph, 1)
        points.arrive(graph, 2)
        product = 2 * before
        points.arrive(graph, 0)
        after = product + 1
        points.arrive(graph, 1)
        points.forget(graph)
        points.arrive(graph, 1)
        found.extend([before, product, after])

    found = []
    graph = tf.function(program).get_concrete_function().graph
    before, product, after = found
    (first, second, third, fourth) = _arrivals_in(graph)
    assert first == ([], ["kernel", "bias"])
    assert second[0][0] is before and second[1] == ["other"]
    assert third[0][0] is product and third[1] == ["kernel", "bias"]
    assert fourth[0][0] is after and fourth[1] == ["bias"]


def _ops_before(op):
    """All ops that run before an op, by data or control."""
    before, found = [op], set()
    while before:
        each = before.pop()
        for earlier in [*(tensor.op for tensor in each.inputs), *each.control_inputs]:
            if earlier.name not in found:
                found.add(earlier.name)
                before.append(earlier)
    return found


def _forward_graph_of_overlapped(layers):
    """The graph of the forward pass of a model of these layers, which trains overlapped."""
    model = keras.Sequential([keras.Input((2,)), *layers])
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    callbacks = [hvd_p3.callbacks.P3Callback(verbose=0)]
    model.fit(np.ones((2, 2)), np.ones((2, 2)), verbose=0, callbacks=callbacks)
    assert model.optimizer.is_overlapped()
    graph = tf.function(lambda x: model(x)).get_concrete_function(tf.TensorSpec([1, 2])).graph
    hvd_p3.settle(model)
    return graph


@pytest.mark.parametrize("most_points", [arrival_points.MOST_POINTS, 4])
def test_updates_wait_for_the_forward_pass_to_come_near(gated_engine, monkeypatch, most_points):
    monkeypatch.setattr(arrival_points, "MOST_POINTS", most_points)
    ahead = arrival_points.LAYERS_AHEAD
    layers = [keras.layers.Dense(2, name=f"layer{number}") for number in range(ahead + 3)]
    graph = _forward_graph_of_overlapped(layers)
    # In the order of the forward pass: kernel and bias of each layer.
    updates = [op for op in graph.get_operations() if op.type == "HvdP3IsPending"]
    products = [op.name for op in graph.get_operations() if op.type == "MatMul"]
    assert len(updates) == 2 * len(layers) and len(products) == len(layers)
    layers_per_point = math.ceil(len(layers) / most_points)
    for number, update in enumerate(updates):
        computed = sum(name in _ops_before(update) for name in products)
        layer = max(0, number // 2 - ahead)
        assert computed == layer - layer % layers_per_point
    arrivals = _arrivals_in(graph)
    assert len(arrivals) == math.ceil(len(layers) / layers_per_point)
    assert len({name for _, names in arrivals for name in names}) == len(updates)


def test_a_pull_costs_no_further_op(gated_engine):
    graph = _forward_graph_of_overlapped([keras.layers.Dense(2)])
    branches = [op.get_attr("then_branch").name for op in graph.get_operations() if op.type == "If"]
    pulled = [
        node.op for name in branches for node in graph._get_function(name).definition.node_def
    ]
    assert pulled.count("HvdP3Pull") == 2
    assert "EnsureShape" not in pulled
