"""Timelines of two ranks, under real MPI."""

import itertools
import json
import math
import os
import tempfile
import time
import warnings
from pathlib import Path

import keras
import models
import numpy as np
import tensorflow as tf
from expect import raises

import hvd_p3 as hvd
from hvd_p3_tools.planner import profile
from hvd_p3_tools.planner.network import Network
from hvd_p3_tools.planner.simulation import slices
from hvd_p3_tools.planner.simulation.cluster import Cluster, Settings
from hvd_p3_tools.planner.simulation.simulator import simulate
from hvd_p3_tools.timeline import chrome_trace, summary, waits
from hvd_p3_tools.timeline.model import PHASES

SETTINGS = {"slice_bytes": 2048, "credit_bytes": 8192}

_STEPS = 6
_BATCH = 8


def _path():
    """A path that all ranks know, in a folder that exists."""
    folder = tempfile.mkdtemp() if hvd.rank() == 0 else None
    return Path(hvd.broadcast_object(folder, 0), "timeline.json")


def _train(callbacks):
    model = models.digits_model()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    x, y = models.digits_of_this_rank(_STEPS * _BATCH)
    model.fit(x, y, batch_size=_BATCH, verbose=0, callbacks=callbacks)
    return len(model.trainable_variables)


def _assert_phases_in_order(rank, variables):
    assert len(rank.reductions) == _STEPS * variables
    for each in rank.reductions:
        times = [getattr(each, phase) for phase in PHASES]
        assert None not in times, each
        assert times == sorted(times), each
        assert each.slices


def _assert_slices(rank):
    assert rank.slices
    starts = [each.start for each in rank.slices]
    assert starts == sorted(starts)
    for each in rank.slices:
        assert each.bytes <= SETTINGS["slice_bytes"]
        assert rank.start <= each.start < each.end <= rank.end
        assert not each.unfinished
    assert max(size for _, size in rank.bytes_in_flight) <= SETTINGS["credit_bytes"]
    assert rank.bytes_in_flight[-1][1] == 0
    for one, other in itertools.combinations(
        [each for each in zip(rank.slices, chrome_trace.lanes(rank.slices), strict=True)], 2
    ):
        if one[1] == other[1]:
            assert one[0].end <= other[0].start or other[0].end <= one[0].start


def _assert_same_clock(timeline):
    """No rank finishes an all-reduce before all have started it."""
    first, second = ({each.number: each for each in rank.slices} for rank in timeline.ranks)
    assert first.keys() == second.keys()
    error = timeline.ranks[1].clock_error
    assert 0 < error < 1e6, "1 ms"
    for number, one in first.items():
        other = second[number]
        assert one.tensors == other.tensors
        assert max(one.start, other.start) <= min(one.end, other.end) + error


def _assert_balanced(path):
    events = json.loads(path.read_text())["traceEvents"]
    stacks = {}
    for event in events:
        if event["ph"] == "b":
            stacks.setdefault(event["id"], []).append(event)
        elif event["ph"] == "e":
            begin = stacks[event["id"]].pop()
            assert (begin["name"], begin["pid"]) == (event["name"], event["pid"])
            assert begin["ts"] <= event["ts"]
    assert stacks
    assert not any(stacks.values())


def check_timeline_of_overlapped_training():
    path = _path()
    before = hvd.statistics()
    hvd.start_timeline(path)
    variables = _train([hvd.callbacks.P3Callback(verbose=0)])
    hvd.stop_timeline()
    after = hvd.statistics()
    if hvd.rank() == 0:
        timeline = chrome_trace.read(path)
        assert [rank.number for rank in timeline.ranks] == [0, 1]
        for rank in timeline.ranks:
            assert rank.dropped == 0
            assert rank.rounds == []
            _assert_phases_in_order(rank, variables)
            _assert_slices(rank)
        assert timeline.settings == SETTINGS
        _assert_same_clock(timeline)
        _assert_balanced(path)
        found = summary.summarize(timeline.ranks[0])
        assert found.steps == _STEPS
        assert found.slices == after["slices"] - before["slices"]
        assert found.bytes == after["bytes"] - before["bytes"]
        for counter, measured in (
            ("communication_seconds", found.communication_s),
            ("forward_wait_seconds", found.waited_s),
        ):
            # Two clocks are read one after the other.
            assert abs(after[counter] - before[counter] - measured) < 0.01, counter


def _simulated_profile(model):
    """The gradients of a model in the order of its layers, with times that do not matter."""
    layers = tuple(
        profile.Layer(
            layer.path,
            1e-3,
            1e-3,
            tuple(
                profile.Gradient(each.path, 4 * math.prod(each.shape))
                for each in layer.trainable_variables
            ),
        )
        for layer in model.layers
        if layer.trainable_variables
    )
    return profile.Profile("digits", "A test.", _BATCH, layers)


def check_a_step_has_the_slices_that_the_planner_simulates():
    settings = Settings(**SETTINGS)
    described = _simulated_profile(models.digits_model())
    sizes = [gradient.bytes for layer in described.layers for gradient in layer.gradients]
    planned = slices.plan(sizes, settings.slice_bytes)
    assert len({len(each.tensors) for each in planned}) > 1, "some are fused"
    assert any(each.offset for each in planned), "some are cut"
    cluster = Cluster(2, Network(bandwidth=1e9))
    for scheme, callbacks in (
        ("immediate", []),
        ("p3", [hvd.callbacks.P3Callback(verbose=0)]),
    ):
        simulated = simulate(described, cluster, scheme, settings)
        path = _path()
        before = hvd.statistics()
        hvd.start_timeline(path)
        _train(callbacks)
        hvd.stop_timeline()
        after = hvd.statistics()
        assert after["bytes"] - before["bytes"] == _STEPS * simulated.bytes, scheme
        assert after["slices"] - before["slices"] == _STEPS * simulated.slices, scheme
        if hvd.rank() == 0:
            (recorded, _) = chrome_trace.read(path).ranks
            real = sorted((len(each.tensors), each.offset, each.bytes) for each in recorded.slices)
            expected = sorted((len(each.tensors), each.offset, each.bytes) for each in planned)
            assert real == sorted(_STEPS * expected), scheme


def check_the_late_rank_is_named():
    """Rank 1 computes longer: rank 0 waits for it."""

    class Late(keras.layers.Layer):
        def call(self, inputs):
            def sleep(value):
                time.sleep(0.2 * hvd.rank())
                return value

            return tf.ensure_shape(tf.numpy_function(sleep, [inputs], inputs.dtype), inputs.shape)

    model = keras.Sequential([keras.Input((4,)), Late(), keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    x, y = np.ones((4, 4), "float32"), np.ones((4, 3), "float32")
    path = _path()
    hvd.start_timeline(path, mark_cycles=True)
    model.fit(x, y, batch_size=1, verbose=0, callbacks=[hvd.callbacks.P3Callback(verbose=0)])
    hvd.stop_timeline()
    if hvd.rank() == 0:
        timeline = chrome_trace.read(path)
        assert all(rank.rounds for rank in timeline.ranks)
        assert all(each.applied for rank in timeline.ranks for each in rank.reductions)
        explained = waits.Explainer(timeline).worst(1000)
        assert any(
            each.rank == 0 and next(iter(each.parts)) == "it was not ready on rank 1"
            for each in explained
        )
        for each in explained:
            assert sum(each.parts.values()) == each.wait.end - each.wait.start


def check_errors_come_on_all_ranks():
    with raises(RuntimeError, "No timeline is being recorded"):
        hvd.stop_timeline()
    with raises(OSError, "Rank 0 cannot write the timeline /nowhere/at/all"):
        hvd.start_timeline("/nowhere/at/all" if hvd.rank() == 0 else "/another/path")
    with raises(TypeError):
        hvd.start_timeline(None)
    path = _path()
    hvd.start_timeline(path)
    with raises(RuntimeError, "being recorded already"):
        hvd.start_timeline(path)
    hvd.stop_timeline()


def check_rank_that_does_not_stop():
    """Each rank writes its own part, on one clock; the next timeline is not disturbed."""
    path = _path()
    hvd.start_timeline(path)
    hvd.ops.all_reduce(tf.ones([3]), name="lonely")
    if hvd.rank() == 1:
        time.sleep(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.stop_timeline(timeout_s=0.2)
    own = f"{path}.rank{hvd.rank()}"
    (warning,) = [
        str(each.message) for each in caught if "could not be gathered" in str(each.message)
    ]
    assert "rank 1 did not come within 0.2 s" in warning
    assert own in warning
    (rank,) = chrome_trace.read(own).ranks
    assert rank.number == hvd.rank()
    assert [each.tensor for each in rank.reductions] == ["lonely"]
    hvd.allgather_object(0)  # both have written
    if hvd.rank() == 0:
        assert os.path.getsize(path) == 0
        timeline = chrome_trace.read(path)
        assert [rank.number for rank in timeline.ranks] == [0, 1]
        _assert_same_clock(timeline)
    hvd.start_timeline(path)
    assert not os.path.exists(own)
    hvd.ops.all_reduce(tf.ones([3]), name="together")
    hvd.stop_timeline()
    if hvd.rank() == 0:
        timeline = chrome_trace.read(path)
        assert [[each.tensor for each in rank.reductions] for rank in timeline.ranks] == [
            ["together"],
            ["together"],
        ]
