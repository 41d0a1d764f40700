"""Profiles measured on this device."""

import keras
import numpy as np
import pytest

import hvd_p3 as hvd
from hvd_p3 import planner
from hvd_p3_tools import command_line
from hvd_p3_tools.planner.model_tables import Convolution

pytestmark = pytest.mark.usefixtures("one_rank")


def _model():
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Conv2D(8, 3, name="convolution"),
            keras.layers.MaxPooling2D(),
            keras.layers.BatchNormalization(name="normalization"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, name="dense"),
        ]
    )


def test_sizes_are_exact_and_nothing_is_trained():
    model = _model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam()), loss="mse")
    before = model.get_weights()
    made = planner.profile(model, batch=4, repeats=1)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert made.batch == 4
    assert made.input_bytes == 4 * 16 * 16 * 3
    assert [layer.name.rpartition("/")[2] for layer in made.layers] == [
        "convolution",
        "normalization",
        "dense",
    ]
    assert [gradient.bytes for gradient in made.layers[0].gradients] == [4 * 27 * 8, 4 * 8]
    assert made.bytes == 4 * sum(np.prod(each.shape) for each in model.trainable_variables)
    # The convolution's 14 x 14 x 8 outputs, and 7 x 7 x 8 of the pooling after it.
    assert made.layers[0].activation_bytes == 4 * (14 * 14 * 8 + 7 * 7 * 8)
    assert made.layers[1].activation_bytes == 4 * 7 * 7 * 8
    assert made.layers[0].convolution == Convolution((16, 16, 3), (3, 3), (1, 1), (14, 14, 8))
    assert made.forward_s > 0
    assert made.update_s > 0


def test_variables_that_no_layer_owns_are_counted():
    class Scaled(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2)
            self.scale = self.add_weight(shape=(5,), name="scale")

        def call(self, inputs, training=False):
            return self.dense(self.dense(inputs)) * self.scale[0]

    made = planner.profile(Scaled(), 3, inputs=np.ones((3, 2), "float32"), repeats=1)
    assert [layer.bytes for layer in made.layers] == [4 * 5, 4 * 6]
    # Called twice, 2 numbers each time.
    assert made.layers[1].activation_bytes == 4 * 4


def test_inputs_have_to_be_known():
    with pytest.raises(planner.PlannerError, match="give inputs="):
        planner.profile(keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(1)]), 2)
    with pytest.raises(planner.PlannerError, match="batch and repeats must be at least 1"):
        planner.profile(_model(), 0)
    with pytest.raises(planner.PlannerError, match="no trainable variables"):
        planner.profile(keras.Sequential([keras.Input((3,)), keras.layers.Flatten()]), 2)


_PROGRAM = """
import sys
import keras
import numpy as np
x = np.zeros((100, 5), "float32")
model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, name=sys.argv[1])])
model.compile("sgd", loss="mse")
try:
    model.fit(x, x[:, :3], batch_size=20)
except Exception:
    pass
open(sys.argv[2], "w").write("trained")
"""


def test_program_is_run_up_to_fit(tmp_path, capsys):
    program, output, trained = (tmp_path / name for name in ("train.py", "p.json", "trained"))
    program.write_text(_PROGRAM)
    original = keras.Model.fit
    arguments = ["profile", "--output", output, program, "wide", trained]
    assert command_line.main(list(map(str, arguments))) == 0
    assert "Written" in capsys.readouterr().out
    made = planner.read(output)
    assert made.batch == 20
    assert made.layers[0].name.endswith("wide")
    assert made.bytes == 4 * (5 * 3 + 3)
    assert not trained.exists()
    assert keras.Model.fit is original


def test_program_without_fit(tmp_path, capsys):
    program = tmp_path / "train.py"
    program.write_text("print('nothing')")
    assert command_line.main(["profile", str(program)]) == 1
    assert "ended without a call of model.fit" in capsys.readouterr().err


def test_all_reduce_of_one_rank_fits_nothing():
    with pytest.raises(planner.PlannerError, match="at least 2 ranks"):
        planner.measure_all_reduce(sizes=[4096, 65536], repeats=1)
