"""The order in which slices leave, from the engine's own trace, under real MPI."""

import time

import numpy as np

import hvd_p3 as hvd
from hvd_p3 import _engine

SETTINGS = {"trace": True, "slice_bytes": 64 * 1024, "credit_bytes": 128 * 1024}

_LAYERS = 10
_LAYER_BYTES = 256 * 1024
_LAST_LAYER_BYTES = 8 * 1024 * 1024
_MOST_TIMES_LARGER = 32
_PATIENCE_S = 60.0


def _bytes_of(times_larger=1):
    """The last layer is large, so that the others become ready while it is on the wire."""
    return [_LAYER_BYTES] * (_LAYERS - 1) + [times_larger * _LAST_LAYER_BYTES]


def _reduce_ten_layers(group, step, sizes):
    """Backpropagation makes the last layer ready first; each rank has delays of its own."""
    specs = [
        (f"layer {layer}", "float32", [sizes[layer] // 4], layer, "sum", 1.0, 1.0)
        for layer in range(_LAYERS)
    ]
    handles = _engine.declare_group(group, specs)
    inputs = [np.full(sizes[layer] // 4, layer + hvd.rank(), "float32") for layer in range(_LAYERS)]
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


def _until_put_to_the_test(check):
    """Calls a check with larger and larger last layers, for fast machines.

    Args:
        check: Function of the sizes of the layers, that returns whether it has seen on this rank
            what it is about, and what must be the same on all ranks.
    """
    times_larger = 1
    while True:
        seen, same, error = False, None, ""
        try:
            seen, same = check(_bytes_of(times_larger))
        except AssertionError as failure:
            error = str(failure)
        of_all = hvd.allgather_object((seen, same, error))
        assert not any(error for _, _, error in of_all), [error for _, _, error in of_all]
        assert all(each == same for _, each, _ in of_all)
        if all(seen for seen, _, _ in of_all):
            return
        times_larger *= 2
        assert times_larger <= _MOST_TIMES_LARGER, "no urgent layer was ready in time to overtake"


def check_urgent_slice_waits_for_the_credit_at_most():
    def check(sizes):
        hvd.take_trace()
        for step in range(5):
            _reduce_ten_layers(f"urgent layers of {sizes}", step, sizes)
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
        return overtaking > 0, None

    _until_put_to_the_test(check)


def check_priority_order_and_same_order_on_all_ranks():
    def check(sizes):
        hvd.take_trace()
        for step in range(5):
            _reduce_ten_layers(f"ten layers of {sizes}", step, sizes)
        waiting = []
        starts = []
        overtakes = 0
        for event in hvd.take_trace():
            key = (event["priority"], event["tensor"], event["offset"])
            if event["kind"] == "queued":
                waiting.append(key)
            elif event["kind"] == "started":
                assert key == min(waiting), f"{key} started while {min(waiting)} waited"  # I2
                overtakes += any(later[0] > key[0] for later in waiting)
                waiting.remove(key)
                starts.append(key)
                assert event["bytes_in_flight"] <= SETTINGS["credit_bytes"]  # I3
        assert len(starts) == 5 * sum(sizes) // SETTINGS["slice_bytes"]
        return overtakes > 0, starts  # I1

    _until_put_to_the_test(check)


def check_statistics():
    before = hvd.statistics()
    sizes = _bytes_of()
    _reduce_ten_layers("ten layers", 99, sizes)
    after = hvd.statistics()
    assert after["bytes"] - before["bytes"] == sum(sizes)
    assert after["slices"] - before["slices"] == sum(sizes) // SETTINGS["slice_bytes"]
    assert after["communication_seconds"] > before["communication_seconds"]
    assert after["held_bytes"] == 0
    assert after["negotiation_rounds"] > before["negotiation_rounds"]


def check_idle_engine_sends_nothing():
    hvd.allgather_object("all ranks are here")
    time.sleep(0.1)
    before = hvd.statistics()["negotiation_rounds"]
    time.sleep(0.5)
    assert hvd.statistics()["negotiation_rounds"] == before
