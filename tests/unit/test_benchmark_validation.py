"""What the benchmark tells the simulation of a replayed model."""

import pytest

from benchmarks import validation
from hvd_p3_tools.planner import model_tables


def test_profile_has_the_bytes_and_times_of_the_replayed_model():
    found = validation.profile_of({"model": "vgg19", "scale": 16.0}, compute_s=0.45)
    table = model_tables.scaled(model_tables.load("vgg19"), 16.0)
    assert found.bytes == table.bytes
    assert found.compute_s == pytest.approx(0.45)
    forward_s = sum(layer.forward_s for layer in found.layers)
    assert forward_s == pytest.approx(0.15)  # a third, as in `replay.make_model`
    assert [layer.name for layer in found.layers] == [layer.name for layer in table.layers]


def test_table_says_how_far_the_simulation_is_off():
    result = {
        "model": "vgg19",
        "hosts": 4,
        "bandwidth": 5e8,
        "system": "hvd_p3-overlapped",
        "step_s": 0.5,
        "step_s_min": 0.49,
        "step_s_max": 0.52,
        "simulated_s": 0.475,
        "error": -0.05,
    }
    table = validation.table_of([result])
    cells = [next(iter(column.cells)) for column in table.columns]
    expected = ["vgg19", "hvd_p3-overlapped", "4", "0.5"]
    assert cells == [*expected, "0.500 (0.490 to 0.520)", "0.475", "-5.0%"]
