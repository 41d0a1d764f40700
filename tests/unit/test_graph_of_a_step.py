"""What TensorFlow makes of the graph of a training step."""

import collections

import keras
import numpy as np
import pytest
from tensorflow.python.eager import context

import hvd_p3


def _fused_ops(overlapped):
    """How often each kind of fused op runs in a step of a model of a convolution and two layers."""
    layers = [
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(8, activation="tanh"),
        keras.layers.Dense(4),
    ]
    model = keras.Sequential([keras.Input((6, 6, 1)), *layers])
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    model.optimizer.build(model.trainable_variables)
    if overlapped:
        assert model.optimizer.turn_overlap_on() is None
    context.enable_run_metadata()
    try:
        model.train_on_batch(np.ones((2, 6, 6, 1), "float32"), np.ones((2, 4), "float32"))
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_run_metadata()
    hvd_p3.settle(model)
    return collections.Counter(
        (node.op, *node.attr["fused_ops"].list.s)
        for graph in graphs
        for node in graph.node
        if "fused_ops" in node.attr
    )


def test_overlap_leaves_fusions(gated_engine):
    immediate = _fused_ops(overlapped=False)
    if not immediate:
        pytest.skip("TensorFlow fuses nothing on this machine")
    assert _fused_ops(overlapped=True) == immediate
