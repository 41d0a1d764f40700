"""The order in which slices leave, from the engine's own trace, under real MPI."""

import time

import numpy as np

import hvd_p3 as hvd
from hvd_p3 import _engine

SETTINGS = {"trace": True, "slice_bytes": 64 * 1024, "credit_bytes": 128 * 1024}

_LAYERS = 10
# The last layer is large, so that the others become ready while it is on the wire.
_BYTES = [256 * 1024] * (_LAYERS - 1) + [8 * 1024 * 1024]
_PATIENCE_S = 60.0


def _reduce_ten_layers(group, step):
    """Backpropagation makes the last layer ready first; each rank has delays of its own."""
    specs = [
        (f"layer {layer}", "float32", [_BYTES[layer] // 4], layer, "sum", 1.0, 1.0)
        for layer in range(_LAYERS)
    ]
    handles = _engine.declare_group(group, specs)
    inputs = [
        np.full(_BYTES[layer] // 4, layer + hvd.rank(), "float32") for layer in range(_LAYERS)
    ]
    outputs = [np.zeros_like(each) for each in inputs]
    delays = np.random.default_rng(100 * step + hvd.rank()).uniform(0, 0.0005, _LAYERS)
    tickets = {}
    for layer in reversed(range(_LAYERS)):
        time.sleep(delays[layer] * (1 + hvd.rank()))
        tickets[layer] = _engine.submit(handles[layer], inputs[layer], outputs[layer])
    for layer, ticket in tickets.items():
        ticket.wait(_PATIENCE_S)
        ranks = sum(range(hvd.size()))
        assert np.all(outputs[layer] == hvd.size() * layer + ranks), f"layer {layer}"


def check_urgent_slice_waits_for_the_credit_at_most():
    hvd.take_trace()
    for step in range(5):
        _reduce_ten_layers("urgent layers", step)
    waited = {}  # most urgent slices that wait -> bytes that finished since
    overtaking = 0
    for event in hvd.take_trace():
        key = (event["tensor"], event["offset"])
        if event["kind"] == "queued" and event["priority"] == 0:
            waited[key] = 0
            overtaking += event["bytes_in_flight"] > 0
        elif event["kind"] == "started" and event["priority"] == 0:
            del waited[key]
        elif event["kind"] == "started":
            assert not waited, f"{key} started while {list(waited)} waited"
        elif event["kind"] == "finished" and event["priority"] != 0:
            for other in waited:
                waited[other] += event["bytes"]
                assert waited[other] <= SETTINGS["credit_bytes"], f"{other} waited for more"
    assert overtaking > 0, "nothing was in flight when the urgent layer became ready"


def check_priority_order_and_same_order_on_all_ranks():
    hvd.take_trace()
    for step in range(5):
        _reduce_ten_layers("ten layers", step)
    trace = hvd.take_trace()
    waiting = []
    starts = []
    overtakes = 0
    for event in trace:
        key = (event["priority"], event["tensor"], event["offset"])
        if event["kind"] == "queued":
            waiting.append(key)
        elif event["kind"] == "started":
            assert key == min(waiting), f"{key} started while {min(waiting)} waited"  # I2
            overtakes += any(later[0] > key[0] for later in waiting)
            waiting.remove(key)
            starts.append(key)
            assert event["bytes_in_flight"] <= SETTINGS["credit_bytes"]  # I3
    assert len(starts) == 5 * sum(_BYTES) // SETTINGS["slice_bytes"]
    assert overtakes > 0, "no slice overtook a less urgent one: the order was not put to the test"
    by_rank = hvd.allgather_object(starts)
    assert all(other == starts for other in by_rank)  # I1


def check_statistics():
    before = hvd.statistics()
    _reduce_ten_layers("ten layers", 99)
    after = hvd.statistics()
    assert after["bytes"] - before["bytes"] == sum(_BYTES)
    assert after["slices"] - before["slices"] == sum(_BYTES) // SETTINGS["slice_bytes"]
    assert after["communication_seconds"] > before["communication_seconds"]
    assert after["held_bytes"] == 0
    assert after["negotiation_rounds"] > before["negotiation_rounds"]


def check_idle_engine_sends_nothing():
    hvd.allgather_object("all ranks are here")
    time.sleep(0.1)
    before = hvd.statistics()["negotiation_rounds"]
    time.sleep(0.5)
    assert hvd.statistics()["negotiation_rounds"] == before
