"""Recording a timeline: one rank with a real engine, and what a rank does if others do not."""

import pickle
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import hvd_p3
from hvd_p3.timeline_recorder import TimelineRecorder
from hvd_p3_tools.timeline import chrome_trace, waits
from hvd_p3_tools.timeline.model import PHASES

_PATIENCE_S = 30.0
_SECOND_LAYER_ELEMENTS = 16 * 17 + 17  # kernel and bias share a slice


def _overlapped_model():
    layers = [keras.layers.Dense(16), keras.layers.Dense(17)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    model.optimizer.build(model.trainable_variables)
    assert model.optimizer.turn_overlap_on() is None
    return model


def _held_bytes_become_none():
    end = time.monotonic() + _PATIENCE_S
    while hvd_p3.statistics()["held_bytes"]:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def test_wait_of_a_forward_pass_is_explained(gated_engine, tmp_path):
    model = _overlapped_model()
    x, y = np.ones((2, 4), "float32"), np.ones((2, 17), "float32")
    model.train_on_batch(x, y)
    _held_bytes_become_none()
    recorder = TimelineRecorder(0, 1, None)
    path = tmp_path / "timeline.json"
    recorder.start(path, mark_cycles=False)
    gated_engine.gate.hold(_SECOND_LAYER_ELEMENTS)
    model.train_on_batch(x, y)
    waiting = threading.Thread(target=model.train_on_batch, args=(x, y))
    waiting.start()
    time.sleep(0.3)
    gated_engine.gate.hold(0)
    waiting.join(_PATIENCE_S)
    hvd_p3.settle(model)
    recorder.stop(1.0)

    (rank,) = chrome_trace.read(path).ranks
    assert [each.tensor.endswith("dense/kernel") for each in rank.reductions].count(True) == 2
    for reduction in rank.reductions:
        times = [getattr(reduction, phase) for phase in PHASES]
        assert None not in times
        assert times == sorted(times)
    # The update of the step before the recording is taken in it; its reduction is no part of it.
    worst = waits.Explainer(chrome_trace.read(path)).worst(1)[0]
    assert "dense+1/" in worst.wait.tensor
    assert worst.wait.end - worst.wait.start > 0.1e9
    assert next(iter(worst.parts)) == "its slices were on the wire"
    fused = [each.tensors for each in rank.slices if "dense+1/" in each.tensors[0]]
    assert [len(tensors) for tensors in fused] == [2, 2]  # kernel and bias


def test_nothing_is_recorded_before_and_after(gated_engine, tmp_path):
    recorder = TimelineRecorder(0, 1, None)
    path = tmp_path / "timeline.json"
    for name in ("first", "second"):
        hvd_p3.ops.all_reduce(tf.ones([3]), name=f"before {name}")
        recorder.start(path, mark_cycles=True)
        hvd_p3.ops.all_reduce(tf.ones([3]), name=name)
        recorder.stop(1.0)
        (rank,) = chrome_trace.read(path).ranks
        assert [each.tensor for each in rank.reductions] == [name]
        assert rank.reductions[0].applied is not None
        assert rank.rounds
    assert len(hvd_p3.take_trace()) == 4 * 5  # the trace of the user goes on


def test_engine_that_has_stopped_keeps_what_it_recorded(gated_engine, tmp_path):
    recorder = TimelineRecorder(0, 1, None)
    path = tmp_path / "timeline.json"
    recorder.start(path, mark_cycles=False)
    hvd_p3.ops.all_reduce(tf.ones([3]), name="last")
    hvd_p3._engine.stop(5.0)
    recorder.stop_at_shutdown(1.0)
    assert [each.tensor for each in chrome_trace.read(path).ranks[0].reductions] == ["last"]
    recorder.stop_at_shutdown(1.0)  # nothing is left to do


def test_setting_records_from_the_start(gated_engine, tmp_path):
    recorder = TimelineRecorder(0, 1, None)
    recorder.start_if_set("")
    assert not recorder.is_recording
    recorder.start_if_set(str(tmp_path / "timeline.json"))
    assert recorder.is_recording
    recorder.stop_at_shutdown(1.0)
    assert chrome_trace.read(tmp_path / "timeline.json").settings["slice_bytes"] == 1200


def test_errors(gated_engine, tmp_path):
    recorder = TimelineRecorder(0, 1, None)
    with pytest.raises(RuntimeError, match=r"call hvd_p3.start_timeline"):
        recorder.stop(1.0)
    with pytest.raises(OSError, match="Rank 0 cannot write the timeline /nowhere/at/all"):
        recorder.start("/nowhere/at/all", mark_cycles=False)
    recorder.start(tmp_path / "timeline.json", mark_cycles=False)
    with pytest.raises(RuntimeError, match="recorded already"):
        recorder.start(tmp_path / "other.json", mark_cycles=False)
    (tmp_path / "timeline.json").unlink()
    tmp_path.rmdir()
    with pytest.warns(UserWarning, match="could not be written"):
        recorder.stop_at_shutdown(1.0)
    tmp_path.mkdir()


class _Answers:
    """What rank 1 hears from rank 0."""

    def __init__(self, **answer):
        self._answer = answer

    def send(self, rank, message, tag, timeout_s):
        assert rank == 0

    def receive(self, rank, tag, timeout_s):
        assert rank == 0
        return pickle.dumps(self._answer)


def test_rank_0_decides_whether_the_setting_records(one_rank):
    rank_1 = TimelineRecorder(1, 2, _Answers(path="", missing=[]))
    rank_1.start_if_set("")
    with pytest.warns(UserWarning, match="HVD_P3_TIMELINE is set on this rank but not on rank 0"):
        rank_1.start_if_set("timeline.json")
    assert not rank_1.is_recording


def test_missing_ranks_are_named(one_rank):
    rank_1 = TimelineRecorder(1, 4, _Answers(path="", missing=[2, 3]))
    with pytest.raises(RuntimeError, match="rank 2, 3 did not come within 60 s"):
        rank_1.start("timeline.json", mark_cycles=False)
