"""Arguments of optimizers and tapes on four real ranks: compression, backward passes, local
variables, process sets, Adasum."""

import warnings

import horovod.tensorflow as horovod
import keras
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd

_PAIRS = [horovod.ProcessSet([0, 1]), horovod.ProcessSet([2, 3])]
SETTINGS = {"process_sets": _PAIRS}

_ELEMENTS = 4096


def _pair():
    """The process set of this rank."""
    return _PAIRS[hvd.rank() // 2]


def _random(rank, elements=_ELEMENTS):
    return np.random.default_rng(rank).normal(size=elements).astype("float32")


def _of_all_ranks():
    return [_random(rank) for rank in range(hvd.size())]


def _zeros(dtype="float32", elements=_ELEMENTS):
    return keras.Variable(np.zeros(elements), dtype=dtype)


def _train(optimizer, variables, steps, overlapped=False):
    """Applies the gradients of each step in a function; returns the variables' values."""
    optimizer.build(variables)
    reason = optimizer.turn_overlap_on() if overlapped else None
    assert reason is None, reason
    apply = tf.function(lambda gradients: optimizer.apply(gradients, variables), autograph=False)
    for gradients in steps:
        apply([tf.convert_to_tensor(gradient) for gradient in gradients])
    assert optimizer.is_overlapped() == overlapped
    return [variable.numpy() for variable in variables]


def _relative_error(actual, expected):
    return np.linalg.norm(actual.astype("float64") - expected) / np.linalg.norm(expected)


def check_compression_halves_the_bytes():
    mean = np.mean(np.float64(_of_all_ranks()), axis=0)
    bounds = {"none": (0.0, 1e-6), "fp16": (1e-5, 1e-3), "bf16": (1e-4, 1e-2)}
    for name, (least, most) in bounds.items():
        results = []
        for overlapped in (False, True):
            before = hvd.statistics()["bytes"]
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.SGD(1.0), compression=getattr(hvd.Compression, name)
            )
            steps = [[_random(hvd.rank())]]
            results += _train(optimizer, [_zeros()], steps, overlapped)
            sent = hvd.statistics()["bytes"] - before
            assert sent == _ELEMENTS * (4 if name == "none" else 2), (name, overlapped, sent)
        error = _relative_error(-results[0], mean)
        assert least <= error <= most, (name, error)
        same_bits(results[1], results[0], name)


def check_compression_leaves_what_has_16_bits_already():
    for dtype in ("float16", "bfloat16"):
        before = hvd.statistics()["bytes"]
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), op=hvd.Sum, compression=hvd.Compression.bf16
        )
        (result,) = _train(optimizer, [_zeros(dtype)], [[tf.ones(_ELEMENTS, dtype)]], True)
        assert np.all(np.asarray(result, "float32") == -4.0), dtype
        assert hvd.statistics()["bytes"] - before == _ELEMENTS * 2, dtype


class Quarters:
    """A compressor of the user: multiples of 1/4 travel as int32."""

    @staticmethod
    def compress(tensor):
        return tf.cast(tensor * 4.0, tf.int32), (0.25, tensor.dtype)

    @staticmethod
    def decompress(tensor, context):
        factor, dtype = context
        return tf.cast(tensor, dtype) * factor


class KeepsTensor(Quarters):
    """The same, with a tensor as context."""

    @staticmethod
    def compress(tensor):
        return tf.cast(tensor * 4.0, tf.int32), (tf.constant(0.25), tensor.dtype)


class Counts(Quarters):
    """The same, with another context each time."""

    calls = 0

    @classmethod
    def compress(cls, tensor):
        cls.calls += 1
        return tf.cast(tensor * 4.0, tf.int32), (0.25 + 0.0 * cls.calls, str(cls.calls))

    @staticmethod
    def decompress(tensor, context):
        return tf.cast(tensor, tf.float32) * context[0]


def check_compressors_of_the_user():
    notices = {Quarters: None, KeepsTensor: "KeepsTensor keeps tensors", Counts: "Counts does not"}
    for compressor, notice in notices.items():
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), op=hvd.Sum, compression=compressor
        )
        variable = _zeros(elements=3)
        optimizer.build([variable])
        reason = optimizer.turn_overlap_on()
        assert reason is None if notice is None else notice in reason, reason
        apply = tf.function(lambda each, on=optimizer: on.apply([each]), autograph=False)
        for _ in range(2):
            apply(tf.fill([3], 0.25 * hvd.rank()))
        same_bits(variable.numpy(), np.full(3, -3.0, "float32"), compressor.__name__)


def check_compressor_that_changes_its_mind_trains_immediately():
    class Switched(Quarters):
        factor = 4.0

        @classmethod
        def compress(cls, tensor):
            return tf.cast(tensor * cls.factor, tf.int32), (1.0 / cls.factor, tensor.dtype)

    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), op=hvd.Sum, compression=Switched
    )
    variable = _zeros(elements=3)
    _train(optimizer, [variable], [[tf.ones(3)]], overlapped=True)
    Switched.factor = 8.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apply = tf.function(lambda: optimizer.apply([tf.fill([3], 0.125)]), autograph=False)
        apply()
    said = [str(each.message) for each in caught if "immediate mode" in str(each.message)]
    assert len(said) == (hvd.rank() == 0) and all("Switched" in each for each in said), said
    assert not optimizer.is_overlapped()
    same_bits(variable.numpy(), np.full(3, -4.5, "float32"), "variable")


def _passes_of(rank):
    """Gradients of two variables in each of seven passes, small integers: their sums are exact."""
    random = np.random.default_rng(rank)
    return [
        [np.float32(random.integers(-8, 8, size=shape)) for shape in ((3, 2), (5,))]
        for _ in range(7)
    ]


def _expected_of_passes(op, average):
    """What plain Keras makes of the sums of three passes of all ranks."""
    variables = [_zeros(elements=shape) for shape in ((3, 2), (5,))]
    optimizer = keras.optimizers.SGD(0.5, momentum=0.5)
    optimizer.build(variables)
    for first in (0, 3):
        sums = [0.0, 0.0]
        for rank in range(hvd.size()):
            for gradients in _passes_of(rank)[first : first + 3]:
                sums = [one + other for one, other in zip(sums, gradients, strict=True)]
        scale = np.float32(1 / (hvd.size() if op == hvd.Average else 1) / (3 if average else 1))
        optimizer.apply([tf.constant(each * scale) for each in sums])
    return [variable.numpy() for variable in variables]


def check_backward_passes_give_the_weights_of_one_process_that_sums_them():
    for op, average in ((hvd.Sum, False), (hvd.Average, True)):
        expected = _expected_of_passes(op, average)
        results = []
        for how in ("eagerly", "immediate", "overlapped"):
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.SGD(0.5, momentum=0.5),
                op=op,
                backward_passes_per_step=3,
                average_aggregated_gradients=average,
            )
            variables = [_zeros(elements=shape) for shape in ((3, 2), (5,))]
            steps = _passes_of(hvd.rank())
            if how == "eagerly":
                seen = [variables[1].numpy()]
                for gradients in steps:
                    optimizer.apply([tf.constant(each) for each in gradients], variables)
                    seen.append(variables[1].numpy())
                for index in range(1, 8):  # updated in passes 3 and 6 alone
                    assert np.array_equal(seen[index], seen[index - 1]) == (index % 3 != 0), index
                results.append([variable.numpy() for variable in variables])
            else:
                results.append(_train(optimizer, variables, steps, how == "overlapped"))
            assert int(optimizer.iterations) == 7
            for one, other in zip(results[-1], expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-5 if average else 0.0)
        for one, other in zip(results[1], results[2], strict=True):
            same_bits(one, other, f"op {op}, average {average}")


def check_other_gradients_in_another_pass_are_refused():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    variables = [_zeros(elements=2), _zeros(elements=2)]
    optimizer.apply([tf.ones(2), tf.ones(2)], variables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with raises(ValueError, "backward_passes_per_step", "[0]", "[0, 1]"):
            optimizer.apply([tf.ones(2), None], variables)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    sparse = tf.IndexedSlices(tf.ones([1]), tf.constant([0]), tf.constant([2]))
    with raises(ValueError, "backward_passes_per_step", "sparse_as_dense=True"):
        optimizer.apply([sparse], [_zeros(elements=2)])


def check_local_variables_differ_between_ranks():
    rank = hvd.rank()
    for op, scale, factor, passes in ((hvd.Average, True, 0.25, 1), (hvd.Sum, False, 1.0, 2)):
        for overlapped in (False, True):
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.SGD(1.0),
                op=op,
                scale_local_gradients=scale,
                backward_passes_per_step=passes,
            )
            variables = [_zeros(elements=3), _zeros(elements=2)]
            optimizer.register_local_var(variables[1])
            steps = [[tf.fill([3], 4.0 * rank), tf.fill([2], 4.0 * rank)]] * 2
            common, local = _train(optimizer, variables, steps, overlapped)
            total = 12.0 if op == hvd.Average else 48.0
            same_bits(common, np.full(3, -total, "float32"), "reduced")
            same_bits(local, np.full(2, 0.0 - 8.0 * rank * factor, "float32"), "local")


def check_sparse_local_variable():
    table = _zeros(elements=(6, 2))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.register_local_var(table.value)
    mine = tf.IndexedSlices(tf.fill([1, 2], 4.0), tf.constant([hvd.rank()]), tf.constant([6, 2]))
    optimizer.apply([mine], [table])
    expected = np.zeros((6, 2), "float32")
    expected[hvd.rank()] = -1.0
    same_bits(table.numpy(), expected, "table")


def check_partial_optimizer_and_tape_leave_layers_out():
    x = np.full((2, 4), 1.0 + hvd.rank(), "float32")
    for kind in ("optimizer", "tape"):
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2, name="own")]
        )
        own = model.layers[-1]
        sgd = keras.optimizers.SGD(0.25)
        if kind == "optimizer":
            model.compile(hvd.PartialDistributedOptimizer(sgd, local_layers=own), loss="mse")
            callbacks = [hvd.callbacks.P3Callback(verbose=0)]
            model.fit(x, np.zeros((2, 2)), batch_size=1, callbacks=callbacks, verbose=0)
            assert sgd.is_overlapped()
        else:
            for _ in range(2):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(model(x)))
                tape = hvd.PartialDistributedGradientTape(tape, local_layers=[own])
                local, others = tape.get_local_and_global_gradients(loss, model.trainable_variables)
                names = [variable.path.split("/")[-2] for variable, _ in local]
                assert names == ["own", "own"] and len(others) == 2, names
                pairs = local + others
                sgd.apply_gradients([(gradient, variable) for variable, gradient in pairs])
        common, local = (
            hvd.allgather_object(layer.kernel.numpy()) for layer in (model.layers[0], own)
        )
        for rank in range(1, hvd.size()):
            same_bits(common[rank], common[0], f"reduced by the {kind}")
            assert not np.array_equal(local[rank], local[0]), kind


def check_process_sets_train_different_models_at_once():
    pair = hvd.rank() // 2
    width = 3 + pair
    table = _zeros(elements=(40, 2))
    variables = [_zeros(elements=(width, 2)), _zeros(elements=(pair + 1,)), table]
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), process_set=_pair(), compression=hvd.Compression.fp16
    )
    optimizer.build(variables)
    assert "process set" in optimizer.turn_overlap_on()
    before = hvd.statistics()["bytes"]

    @tf.function(autograph=False)
    def step():
        rows = tf.IndexedSlices(
            tf.fill([2, 2], 2.0), tf.constant([hvd.rank(), 30]), tf.constant([40, 2])
        )
        value = 1.0 + hvd.rank()
        optimizer.apply([tf.fill([width, 2], value), tf.fill([pair + 1], value), rows])

    for _ in range(1 + pair):  # not even equally many steps
        step()
    mean = np.float32(-(1 + pair) * (1.5 + 2 * pair))
    same_bits(variables[0].numpy(), np.full((width, 2), mean), "matrix")
    same_bits(variables[1].numpy(), np.full(pair + 1, mean), "vector")
    expected = np.zeros((40, 2), "float32")
    expected[[2 * pair, 2 * pair + 1]], expected[30] = -(1.0 + pair), -2.0 * (1 + pair)
    same_bits(table.numpy(), expected, "table")
    assert hvd.statistics()["bytes"] == before


def check_ranks_outside_of_a_process_set_train_by_themselves():
    rank = hvd.rank()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=_PAIRS[0])
    variables = [_zeros(elements=3), _zeros(elements=2)]
    optimizer.register_local_var(variables[1])
    optimizer.apply([tf.fill([3], float(rank)), tf.fill([2], float(rank))], variables)
    value = -0.5 if rank < 2 else -float(rank)
    same_bits(variables[0].numpy(), np.full(3, value, "float32"), "reduced")
    same_bits(variables[1].numpy(), np.full(2, -rank / 2, "float32"), "local")


def check_all_ranks_reduce_after_some_have_used_a_process_set():
    if hvd.rank() < 2:
        variable = _zeros(elements=2)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=_PAIRS[0])
        optimizer.apply([tf.ones(2)], [variable])
        same_bits(variable.numpy(), np.full(2, -1.0, "float32"), "variable of the set")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    (result,) = _train(optimizer, [_zeros(elements=2)], [[tf.fill([2], 1.0 * hvd.rank())]], True)
    same_bits(result, np.full(2, -1.5, "float32"), "variable of all")


def _adasum(vectors):
    """Maleki et al. (2020), section 3: pairs of neighbours, then pairs of pairs."""
    if len(vectors) == 1:
        return vectors[0]
    half = len(vectors) // 2
    one, other = _adasum(vectors[:half]), _adasum(vectors[half:])
    dot = one @ other
    return (1 - dot / (2 * (one @ one))) * one + (1 - dot / (2 * (other @ other))) * other


def check_adasum():
    common = _random(100)
    vectors = [np.float64(_random(rank) + common) for rank in range(hvd.size())]
    expected = _adasum(vectors)
    mine = tf.constant(_random(hvd.rank()) + common)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Adasum)
    variable = _zeros()
    optimizer.build([variable])
    assert "Adasum" in optimizer.turn_overlap_on()
    (result,) = _train(optimizer, [variable], [[mine]])
    assert _relative_error(-result, expected) < 1e-6
    source = tf.Variable(tf.zeros(_ELEMENTS))
    for compression, most in ((hvd.Compression.none, 1e-6), (hvd.Compression.fp16, 2e-3)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(source * mine)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Adasum, compression=compression)
        assert _relative_error(tape.gradient(loss, source).numpy(), expected) < most
    sparse = tf.IndexedSlices(tf.ones([1]), tf.constant([0]), tf.constant([2]))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Adasum)
    with raises(ValueError, "op=hvd_p3.Adasum", "sparse_as_dense=True"):
        optimizer.apply([sparse], [_zeros(elements=2)])
    with raises(ValueError, "op=hvd_p3.Adasum", "process_set"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Adasum, process_set=_pair())


def check_tape_with_compression_local_sources_and_a_process_set():
    rank = hvd.rank()
    common, local = tf.Variable(tf.zeros(3)), tf.Variable(tf.zeros(2))
    for process_set, mean, size in (
        (horovod.global_process_set, 1.5, 4),
        (_pair(), 0.5 + 2 * (rank // 2), 2),
    ):
        for in_graph in (False, True):

            def compute(process_set=process_set):
                with tf.GradientTape() as tape:
                    loss = (tf.reduce_sum(common) + tf.reduce_sum(local)) * rank
                tape = hvd.DistributedGradientTape(
                    tape, compression=hvd.Compression.bf16, process_set=process_set
                )
                tape.register_local_source(local)
                return tape.gradient(loss, [common, local], use_generic_names=True)

            reduced, own = tf.function(compute, autograph=False)() if in_graph else compute()
            same_bits(reduced, np.full(3, mean, "float32"), "reduced")
            same_bits(own, np.full(2, rank / size, "float32"), "local")
