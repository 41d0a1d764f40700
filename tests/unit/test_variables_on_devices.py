"""Variables on several devices: two logical devices of the host stand for a GPU and the host."""

import threading
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import hvd_p3
from hvd_p3 import ops
from hvd_p3.variables import native_variable

_SECOND = "/job:localhost/replica:0/task:0/device:CPU:1"
# So many that the two layers do not share a slice.
_HIDDEN, _OUTPUTS = 16, 17
_GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


def _model_on_two_devices(overlapped):
    keras.utils.set_random_seed(0)
    first, second = keras.layers.Dense(_HIDDEN, activation="tanh"), keras.layers.Dense(_OUTPUTS)
    first.build((None, 4))
    with tf.device(_SECOND):
        second.build((None, _HIDDEN))
    model = keras.Sequential([keras.Input((4,)), first, second])
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    model.compile(optimizer, loss="mse")
    model.optimizer.build(model.trainable_variables)
    if overlapped:
        assert model.optimizer.turn_overlap_on() is None
    return model


def _slots(model):
    return model.optimizer._hvd_p3_state.reducer.slots


def _train(model, steps=3):
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    for _ in range(steps):
        model.train_on_batch(x, np.ones((2, _OUTPUTS), "float32"))


def test_slots_are_on_the_devices_of_their_variables(gated_engine):
    model = _model_on_two_devices(overlapped=True)
    _train(model, steps=1)
    devices = [native_variable(variable).device for variable in model.trainable_variables]
    assert [slot.device for slot in _slots(model)] == devices
    assert [slot.handle.device for slot in _slots(model)] == devices
    assert len(set(devices)) == 2
    assert all(bool(ops.is_pending(slot)) for slot in _slots(model))


@pytest.mark.parametrize("overlapped", [False, True])
def test_training_on_two_devices(gated_engine, overlapped):
    model = _model_on_two_devices(overlapped)
    _train(model)
    alone = _model_on_two_devices(overlapped=False)
    alone.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    _train(alone)
    for ours, plain in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-6, atol=1e-7)


def test_arrivals_reach_the_slots_of_every_device(gated_engine):
    """While the reduction of the second layer is held, the program waits for it."""
    model = _model_on_two_devices(overlapped=True)
    _train(model, steps=2)
    hvd_p3.settle(model)  # the gate must not hold what these steps have pushed
    gated_engine.gate.hold(_HIDDEN * _OUTPUTS + _OUTPUTS)  # kernel and bias share a slice
    _train(model, steps=1)
    waited = hvd_p3.statistics()["forward_wait_seconds"]
    reader = threading.Thread(target=_train, args=(model, 1))
    reader.start()
    time.sleep(0.3)
    gated_engine.gate.hold(0)
    reader.join()
    assert hvd_p3.statistics()["forward_wait_seconds"] > waited + 0.2


def test_memory_that_the_engine_cannot_reduce_is_reduced_on_the_host(monkeypatch):
    on_gpu = types.SimpleNamespace(device=_GPU)
    monkeypatch.setattr(ops, "_REDUCED_DEVICES", ("CPU",))
    assert ops.device_of(on_gpu) == ops.HOST
    monkeypatch.setattr(ops, "_REDUCED_DEVICES", ("CPU", "GPU"))
    assert ops.device_of(on_gpu) == _GPU
    assert ops.device_of(types.SimpleNamespace(device=None)) == ops.HOST


def test_eager_reads_do_not_return_weights_that_may_still_be_lost(gated_engine, monkeypatch):
    """On a GPU a pull returns before its result is complete; what is saved must be."""
    model = _model_on_two_devices(overlapped=True)
    _train(model, steps=1)

    def confirm(slot):
        assert not ops.is_pending(slot)
        raise tf.errors.UnavailableError(None, None, f"the update of {slot.name} is lost")

    monkeypatch.setattr(ops, "confirm", confirm)
    with pytest.raises(tf.errors.UnavailableError, match="is lost"):
        model.get_weights()
    with pytest.raises(tf.errors.UnavailableError, match="is lost"):
        hvd_p3.settle(model)


def test_only_what_is_on_a_gpu_is_confirmed(monkeypatch):
    confirmed = []
    library = types.SimpleNamespace(hvd_p3_confirm=confirmed.append)
    monkeypatch.setattr(ops, "_library", library)
    for device in (_GPU, _SECOND, ops.HOST):
        ops.confirm(types.SimpleNamespace(device=device, handle=device))
    assert confirmed == [_GPU]
