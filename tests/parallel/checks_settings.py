"""Settings that change while ranks reduce, and what sums have to do with slices."""

import contextlib
import dataclasses
import io

import keras
import numpy as np
from expect import same_bits

import hvd_p3 as hvd
from hvd_p3 import _engine, autotune, process

SETTINGS = {"slice_bytes": 8 * 1024, "credit_bytes": 32 * 1024}

_PATIENCE_S = 60.0
# Single elements, odd numbers and more than a slice, so that slices end at different places.
_ELEMENTS = [1, 3, 1000, 70_001, 5]


def _reduce(group, inputs):
    specs = [
        (f"tensor {index}", "float32", [len(each)], index, "sum", 1.0, 1.0)
        for index, each in enumerate(inputs)
    ]
    outputs = [np.zeros_like(each) for each in inputs]
    tickets = [
        _engine.submit(handle, each, output)
        for handle, each, output in zip(
            _engine.declare_group(group, specs), inputs, outputs, strict=True
        )
    ]
    for ticket in tickets:
        ticket.wait(_PATIENCE_S)
    return outputs


def _settings():
    current = _engine.current_settings()
    return current["slice_bytes"], current["credit_bytes"]


def _adopt(group, inputs, slice_bytes, credit_bytes):
    """Has rank 0 propose settings, and reduces until all ranks have them."""
    if hvd.rank() == 0:
        _engine.propose_settings(slice_bytes, credit_bytes)
    for _ in range(20):
        outputs = _reduce(group, inputs)
        in_force = hvd.allgather_object(_settings())
        assert len(set(in_force)) == 1, f"ranks have different settings: {in_force}"
        if in_force[0] == (slice_bytes, credit_bytes):
            return outputs
    raise AssertionError(f"settings were not adopted: {in_force}")


def check_all_ranks_adopt_what_rank_0_proposes():
    inputs = [np.full(size, 1.0 + hvd.rank(), "float32") for size in _ELEMENTS]
    assert _settings() == (SETTINGS["slice_bytes"], SETTINGS["credit_bytes"])
    expected = sum(range(1, hvd.size() + 1))
    for slice_bytes, credit_bytes in [(4096, 8192), (1 << 20, 1 << 21), (512, 512)]:
        before = hvd.statistics()["slices"]
        _adopt("adopted", inputs, slice_bytes, credit_bytes)
        for output in _reduce("adopted", inputs):
            assert np.all(output == expected)
        assert hvd.statistics()["slices"] > before


def check_other_ranks_cannot_propose():
    inputs = [np.ones(10, "float32")]
    _adopt("not adopted", inputs, 4096, 8192)
    if hvd.rank() != 0:
        _engine.propose_settings(2048, 2048)
    for _ in range(5):
        _reduce("not adopted", inputs)
    assert _settings() == (4096, 8192)


def check_groups_declared_later_have_the_settings_in_force():
    inputs = [np.ones(4096, "float32")]
    _adopt("earlier", inputs, 4096, 8192)
    hvd.allgather_object(0)
    before = hvd.statistics()["slices"]
    _reduce("later", inputs)
    assert hvd.statistics()["slices"] - before == 4


def check_sums_do_not_depend_on_slices():
    """So that the search for settings does not change what is trained."""
    assert _engine.current_settings()["sums_independent_of_slices"]
    random = np.random.default_rng(hvd.rank())
    # Sizes of all magnitudes, for which the order of an addition shows in the last bits.
    inputs = [
        (random.normal(size=size) * 10.0 ** random.integers(-6, 6, size=size)).astype("float32")
        for size in _ELEMENTS
    ]
    results = [
        _adopt("sums", inputs, slice_bytes, 1 << 21)
        for slice_bytes in (4, 1000, 12_345, 64 * 1024, 120 * 1024, 1 << 20)
    ]
    for outputs in results[1:]:
        for output, first in zip(outputs, results[0], strict=True):
            np.testing.assert_array_equal(output.view("uint32"), first.view("uint32"))


def _trained_weights():
    keras.utils.set_random_seed(5)
    layers = [keras.Input((32,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    x = np.random.default_rng(hvd.rank()).normal(size=(260, 32)).astype("float32")
    callbacks = [hvd.callbacks.P3Callback(verbose=0)]
    model.fit(x, x.sum(axis=1), batch_size=1, callbacks=callbacks, verbose=0)
    assert model.optimizer.is_overlapped()
    return model.get_weights()


def check_autotuning_changes_settings_on_all_ranks_and_no_weight():
    expected = _trained_weights()
    current = process.current()
    manual = current.config
    current.config = dataclasses.replace(manual, autotune=True)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            weights = _trained_weights()
        tuner = autotune.current()
    finally:
        current.config = manual
    for index, (weight, other) in enumerate(zip(weights, expected, strict=True)):
        same_bits(weight, other, f"weight {index}")
    in_force = set(hvd.allgather_object(_settings()))
    assert len(in_force) == 1, f"ranks have different settings: {in_force}"
    if hvd.rank() == 0:
        assert tuner.is_finished(), output.getvalue()
        assert in_force == {tuner.best()}
        assert output.getvalue().startswith("P3 autotune: slice_bytes=")
    else:
        assert tuner is None and output.getvalue() == ""
