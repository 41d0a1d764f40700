"""Profiles measured on this device."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import hvd_p3 as hvd
from hvd_p3 import planner
from hvd_p3.planner import flops, inputs
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
    made = planner.profile(model, batch=4, repeats=3)
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


_IMAGES = (2, 8, 8, 4)
_SEQUENCES = (2, 5, 6)


@pytest.mark.parametrize(
    ("layer", "shape", "products"),
    [
        (keras.layers.Dense(3), (2, 4), 4 * 3),
        (keras.layers.EinsumDense("abc,cde->abde", (None, 7, 2)), _SEQUENCES, 5 * 6 * 14),
        # 6 x 6 positions, 3 x 3 elements; each of 2 groups makes 2 of its 2 channels.
        (keras.layers.Conv2D(4, 3, groups=2), _IMAGES, 36 * 9 * 2 * 4),
        (keras.layers.Conv1D(4, 3), _SEQUENCES, 3 * 3 * 6 * 4),
        (keras.layers.Conv3D(4, 3), (2, 5, 5, 5, 2), 27 * 27 * 2 * 4),
        # Each of 8 x 8 inputs goes to 3 x 3 outputs.
        (keras.layers.Conv2DTranspose(5, 3, strides=2), _IMAGES, 64 * 9 * 4 * 5),
        (keras.layers.DepthwiseConv2D(3, depth_multiplier=2), _IMAGES, 36 * 9 * 4 * 2),
        (keras.layers.SeparableConv2D(5, 3), _IMAGES, 36 * 9 * 4 + 36 * 4 * 5),
        # 5 steps; 4 or 3 gates of 7 units read 6 inputs and 7 units.
        (keras.layers.LSTM(7), _SEQUENCES, 5 * 4 * 7 * (6 + 7)),
        (keras.layers.GRU(7), _SEQUENCES, 5 * 3 * 7 * (6 + 7)),
        (keras.layers.SimpleRNN(7, unroll=True), _SEQUENCES, 5 * 7 * (6 + 7)),
        (keras.layers.Bidirectional(keras.layers.LSTM(7)), _SEQUENCES, 2 * 5 * 4 * 7 * (6 + 7)),
        (keras.layers.BatchNormalization(), _IMAGES, 0),
    ],
    ids=lambda value: value.name if isinstance(value, keras.Layer) else None,
)
def test_operations_of_layers(layer, shape, products):
    inputs = keras.ops.ones(shape)
    layer(inputs)
    counted = flops.of_layer(layer, (inputs,), {"training": True})
    assert counted == 2 * shape[0] * products


def test_operations_of_attention():
    inputs = keras.ops.ones(_SEQUENCES)
    layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=3)
    layer(inputs, inputs)
    # Query, key, value and output: 5 positions, 6 x 6. For each of 2 heads, 5 x 5 scores from 3
    # numbers each, and 5 x 3 sums of 5.
    products = 4 * 5 * 6 * 6 + 2 * (5 * 5 * 3 + 5 * 3 * 5)
    assert flops.of_layer(layer, (inputs, inputs), {}) == 2 * 2 * products


def test_operations_within_functions_that_were_traced_before():
    square = tf.function(lambda matrix: tf.matmul(matrix, matrix, transpose_a=True))
    matrix = tf.ones((3, 4))
    square(tf.ones((4, 4)))
    assert flops.count(lambda: square(tf.ones((4, 4)))) == 2 * 4 * 4 * 4
    assert flops.count(lambda: tf.einsum("...ij,...kj->...ik", matrix, matrix)) == 2 * 3 * 4 * 3
    assert flops.count(lambda: tf.einsum("ij->ji", matrix)) == 0
    assert not tf.config.functions_run_eagerly()


def test_profiles_have_the_operations_of_an_example():
    made = planner.profile(_model(), batch=4, repeats=1)
    assert [layer.flops for layer in made.layers] == [
        2 * 14 * 14 * 27 * 8,
        0,
        2 * 7 * 7 * 8 * 10,
    ]
    assert made.flops_per_s is None


_DATA = np.arange(200, dtype="float32").reshape(100, 2)


class _Slow(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        time.sleep(0.02)
        return _DATA[:5], _DATA[:5]


def _generator():
    for _ in range(4):
        time.sleep(0.02)
        yield _DATA[:5], _DATA[:5]


@pytest.mark.parametrize(
    "make",
    [
        lambda: _Slow(),
        _generator,
        lambda: tf.data.Dataset.from_generator(
            _generator, output_signature=(tf.TensorSpec((5, 2)), tf.TensorSpec((5, 2)))
        ),
    ],
    ids=["PyDataset", "generator", "tf.data"],
)
def test_time_of_the_input(make):
    first, batches = inputs.first_batch(make())
    assert first.shape == (5, 2)
    assert inputs.next_s(batches) >= 0.02
    with pytest.raises(planner.PlannerError, match=r"--batch 7 does not fit .* in batches of 5"):
        inputs.first_batch(make(), wanted=7)
    inputs.first_batch(make(), wanted=5)


@pytest.mark.parametrize(("workers", "seconds"), [(1, 2.0), (4, 0.5)])
def test_workers_make_batches_at_the_same_time(monkeypatch, workers, seconds):
    """By a clock that says that the two batches after the first took 4 s."""
    monkeypatch.setattr(time, "perf_counter", iter([10.0, 14.0]).__next__)
    assert inputs.next_s(_Slow(workers=workers)) == seconds


def test_time_of_arrays():
    first, batches = inputs.first_batch(_DATA, _DATA, 20)
    np.testing.assert_array_equal(first, _DATA[:20])
    assert inputs.next_s(batches) > 0
    rows = np.concatenate([x for x, _ in batches])
    assert not np.array_equal(rows, _DATA)
    np.testing.assert_array_equal(np.sort(rows, axis=0), _DATA)
    _, in_order = inputs.first_batch({"a": _DATA}, None, 30, shuffle=False, wanted=40)
    assert [x["a"].shape[0] for (x,) in in_order] == [40, 40, 20]
    with pytest.raises(planner.PlannerError, match=r"--batch 101 does not fit .* has 100 examples"):
        inputs.first_batch(_DATA, wanted=101)


def test_batches_of_the_program_cannot_be_changed(tmp_path, capsys):
    program = tmp_path / "train.py"
    program.write_text(
        _PROGRAM.replace(
            "model.fit(x, x[:, :3], batch_size=20)",
            "import tensorflow as tf; data = tf.data.Dataset.from_tensor_slices((x, x[:, :3]));"
            "model.fit(data.batch(20))",
        )
    )
    arguments = ["profile", "--batch", "7", "--output", tmp_path / "p.json", program, "any"]
    arguments += [tmp_path / "trained"]
    assert command_line.main(list(map(str, arguments))) == 1
    errors = capsys.readouterr().err
    assert "--batch 7 does not fit the program, whose data come in batches of 20" in errors


def test_all_reduce_of_one_rank_fits_nothing():
    with pytest.raises(planner.PlannerError, match="at least 2 ranks"):
        planner.measure_all_reduce(sizes=[4096, 65536], repeats=1)
