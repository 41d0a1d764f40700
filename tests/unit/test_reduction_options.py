"""Arguments of optimizers and tapes: what is refused, and what they do on one rank."""

import horovod.tensorflow as horovod
import keras
import numpy as np
import pytest
import tensorflow as tf

import hvd_p3
from hvd_p3.compression import WireFormat, reason_for_immediate_mode

_REFUSED = [
    ({"op": hvd_p3.Max}, ["op must be", "hvd_p3.Adasum"]),
    ({"gradient_predivide_factor": 0}, ["gradient_predivide_factor", "above 0"]),
    ({"gradient_predivide_factor": 2.0, "op": hvd_p3.Sum}, ["needs op=hvd_p3.Average"]),
    ({"compression": "fp16"}, ["compression", "hvd_p3.Compression", "'fp16'"]),
    ({"process_set": [0]}, ["process_set", "ProcessSet", "[0]"]),
    ({"process_set": horovod.ProcessSet([0])}, ["process_set", "hvd_p3.init(process_sets="]),
    ({"device_dense": 0}, ["device_dense", "str"]),
    ({"device_sparse": None}, ["device_sparse", "str"]),
    ({"groups": -1}, ["groups", "-1"]),
    ({"groups": [["kernel"]]}, ["groups", "variables"]),
    ({"groups": [tf.constant(1.0)]}, ["groups", "list of lists"]),
]

_REFUSED_OF_OPTIMIZER = [
    ({"backward_passes_per_step": 0}, ["backward_passes_per_step", "at least 1"]),
    ({"backward_passes_per_step": 2.0}, ["backward_passes_per_step", "2.0"]),
    (
        {"average_aggregated_gradients": True, "op": hvd_p3.Adasum},
        ["average_aggregated_gradients", "Adasum"],
    ),
]


def _assert_refused(call, parts):
    with pytest.raises(ValueError) as raised:
        call()
    for part in parts:
        assert part in str(raised.value)


@pytest.mark.parametrize(("arguments", "parts"), _REFUSED + _REFUSED_OF_OPTIMIZER)
def test_optimizer_refuses(one_rank, arguments, parts):
    sgd = keras.optimizers.SGD()
    _assert_refused(lambda: hvd_p3.DistributedOptimizer(sgd, **arguments), parts)
    assert hvd_p3.DistributedOptimizer(sgd) is sgd  # nothing was done to it


@pytest.mark.parametrize(("arguments", "parts"), _REFUSED)
def test_tape_refuses(one_rank, arguments, parts):
    tape = tf.GradientTape()
    _assert_refused(lambda: hvd_p3.DistributedGradientTape(tape, **arguments), parts)


def test_two_kinds_of_accumulation_are_refused(one_rank):
    sgd = keras.optimizers.SGD(gradient_accumulation_steps=2)
    _assert_refused(
        lambda: hvd_p3.DistributedOptimizer(sgd, backward_passes_per_step=2),
        ["gradient_accumulation_steps=2", "backward_passes_per_step=2"],
    )


def test_arguments_without_effect_are_taken(one_rank):
    variables = [[tf.Variable(1.0)], [keras.Variable(1.0), tf.Variable(2.0)]]
    for groups in (0, 3, variables, None):
        hvd_p3.DistributedOptimizer(
            keras.optimizers.SGD(), device_dense="/cpu:0", device_sparse="/cpu:0", groups=groups
        )
    with pytest.warns(DeprecationWarning, match="num_groups is deprecated; use groups"):
        hvd_p3.DistributedOptimizer(keras.optimizers.SGD(), num_groups=2)
    with pytest.warns(DeprecationWarning):
        hvd_p3.DistributedGradientTape(tf.GradientTape(), num_groups=2)


def test_arguments_of_horovod_in_its_order(one_rank):
    """Positional arguments mean what they mean there."""
    optimizer = hvd_p3.DistributedOptimizer(
        keras.optimizers.SGD(), "n", "", "", hvd_p3.Compression.fp16, True, 1.0, hvd_p3.Sum, 2
    )
    options = optimizer._hvd_p3_state.reducer.options
    assert options.name == "n"
    assert options.compression is horovod.Compression.fp16
    assert options.sparse_as_dense
    assert options.op == hvd_p3.Sum


def test_local_layers_that_are_refused(one_rank):
    layer = keras.layers.Dense(2, name="late")
    with pytest.raises(ValueError, match=r"local_layers.*'late'.*Build"):
        hvd_p3.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=layer)
    for wrong in ("late", [layer.name], 3):
        with pytest.raises(TypeError, match="local_layers"):
            hvd_p3.PartialDistributedGradientTape(tf.GradientTape(), local_layers=wrong)


def test_local_variables_that_are_refused(one_rank):
    optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD())
    with pytest.raises(TypeError, match=r"register_local_var.*'kernel'"):
        optimizer.register_local_var("kernel")
    tape = hvd_p3.DistributedGradientTape(tf.GradientTape())
    with pytest.raises(TypeError, match=r"register_local_source.*'kernel'"):
        tape.register_local_source("kernel")


def test_backward_passes_on_one_rank(one_rank):
    """A model compiled by XLA, as Keras does by default."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    start = model.get_weights()
    optimizer = hvd_p3.DistributedOptimizer(
        keras.optimizers.SGD(0.5), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    model.compile(optimizer, loss="mse")
    x, y = np.random.default_rng(0).normal(size=(2, 8, 4)).astype("float32")
    model.fit(x, y[:, :3], batch_size=2, shuffle=False, verbose=0)
    assert int(optimizer.iterations) == 4
    plain = keras.models.clone_model(model)
    plain.set_weights(start)
    plain.compile(keras.optimizers.SGD(0.5), loss="mse")
    plain.fit(x, y[:, :3], batch_size=4, shuffle=False, verbose=0)
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_bfloat16_compression(dtype):
    tensor = tf.cast([1.0, 3.0e38 if dtype in ("float32", "float64") else 3.0], dtype)
    compressed, context = hvd_p3.Compression.bf16.compress(tensor)
    assert compressed.dtype == ("float16" if dtype == "float16" else "bfloat16")
    restored = hvd_p3.Compression.bf16.decompress(compressed, context)
    assert restored.dtype == dtype
    np.testing.assert_allclose(np.float64(restored), np.float64(tensor), rtol=2**-8)


def test_wire_format_is_known_before_there_is_a_gradient():
    variable = tf.Variable(tf.zeros([2, 3]), name="kernel")
    wire_format = WireFormat(hvd_p3.Compression.fp16, variable)
    assert (wire_format.dtype, wire_format.shape) == (tf.float16, (2, 3))
    sent = wire_format.compress(tf.ones([2, 3]))
    assert wire_format.decompress(sent).dtype == tf.float32
    assert reason_for_immediate_mode(hvd_p3.Compression.fp16, [wire_format], [variable]) is None
    with pytest.raises(ValueError, match=r"kernel.*immediate mode"):
        wire_format.compress(tf.ones([3, 3]))
