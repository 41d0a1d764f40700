"""The engine's ops on real ranks: dtypes, TensorFlow contexts, odd values and bad input."""

import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd


def check_all_dtypes_sum_and_average():
    for dtype in hvd.ops.REDUCIBLE_DTYPES:
        base = np.arange(1000).reshape(10, 100) % 23
        mine = tf.cast(base * (hvd.rank() + 1), dtype)
        total = hvd.ops.all_reduce(mine, name=f"sum.{dtype.name}", op=hvd.Sum)
        expected = base * sum(range(1, hvd.size() + 1))
        same_bits(total, tf.cast(expected, dtype), f"sum of {dtype.name}")
        mean = hvd.ops.all_reduce(mine, name=f"average.{dtype.name}", op=hvd.Average)
        exact = expected / hvd.size()
        same_bits(mean, tf.cast(tf.constant(exact), dtype), f"average of {dtype.name}")


def check_half_precision_sums_round_to_nearest_even():
    # 2049 and 257 lie halfway between representable numbers; the sums round to the even one.
    for dtype, large in ((tf.float16, 2048.0), (tf.bfloat16, 256.0)):
        mine = (
            tf.constant([large, 1.0, -0.0, 6e-8], dtype)
            if hvd.rank() == 0
            else tf.constant([1.0, large + 2, -0.0, 0.0], dtype)
        )
        total = hvd.ops.all_reduce(mine, name=f"rounding.{dtype.name}", op=hvd.Sum)
        spacing = 2.0
        # large + 1 is a tie and goes to large; 1 + (large + 2) is one and goes to large + 4.
        expected = tf.constant([large, large + 2 * spacing, -0.0, 6e-8], dtype)
        same_bits(total, expected, dtype.name)


def check_large_tensor_of_many_slices():
    elements = 3 * hvd.process.current().config.slice_bytes // 4 + 17
    mine = np.random.default_rng(hvd.rank()).normal(size=elements).astype("float32")
    both = [np.random.default_rng(rank).normal(size=elements).astype("float32") for rank in (0, 1)]
    total = hvd.ops.all_reduce(mine, name="large", op=hvd.Sum)
    same_bits(total, both[0] + both[1], "sum")


def check_scales():
    mine = tf.constant([1.0, 2.0]) * (hvd.rank() + 1)
    scaled = hvd.ops.all_reduce(
        mine, name="scaled", op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0
    )
    same_bits(scaled, np.array([6.0, 12.0], "float32"), "scaled sum")


def check_function_cond_and_while_loop():
    @tf.function
    def program(value, times):
        doubled = hvd.ops.all_reduce(value, name="function", op=hvd.Sum)
        branch = tf.cond(
            times > 1,
            lambda: hvd.ops.all_reduce(doubled, name="branch", op=hvd.Sum),
            lambda: doubled,
        )
        return tf.while_loop(
            lambda step, _: step < times,
            lambda step, x: (step + 1, hvd.ops.all_reduce(x, name="loop", op=hvd.Sum)),
            (0, branch),
        )[1]

    for times in (3, 1):
        result = program(tf.constant([1.0, 2.0]), tf.constant(times))
        factor = 2.0 * (2.0 if times > 1 else 1.0) * 2.0**times
        same_bits(result, np.array([1.0, 2.0], "float32") * np.float32(factor), f"{times} times")


def check_gradient():
    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.ops.all_reduce(x, name="differentiated", op=hvd.Average)
            loss = tf.reduce_sum(y * tf.cast(hvd.rank() + 1, tf.float32))
        return tape.gradient(loss, x)

    # The upstream gradient is 1 on rank 0 and 2 on rank 1; their average is 1.5.
    for _ in range(2):
        same_bits(gradient(tf.constant([3.0, 4.0])), np.float32([1.5, 1.5]), "gradient")
    x = tf.constant([3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = hvd.ops.all_reduce(x, name="differentiated eagerly", op=hvd.Sum)
    same_bits(tape.gradient(y, x), np.float32([2.0]), "eager gradient")


def check_not_a_number_and_infinity_pass_through():
    mine = [np.nan, 1.0, np.inf, -np.inf] if hvd.rank() == 0 else [1.0, 1.0, 1.0, np.inf]
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        total = hvd.ops.all_reduce(tf.constant(mine, dtype), name=f"nan.{dtype.name}", op=hvd.Sum)
        total = tf.cast(total, tf.float64).numpy()
        assert np.isnan(total[0]), total
        assert total[1] == 2.0, total
        assert total[2] == np.inf, total
        assert np.isnan(total[3]), total


def check_only_what_nothing_else_uses_is_reduced_in_place():
    """On one rank the program uses the tensor itself, too; on the others it is overwritten."""
    values = [np.random.default_rng(rank).normal(size=100_003) for rank in range(hvd.size())]
    values = [each.astype("float32") for each in values]
    is_used = hvd.rank() == 0

    @tf.function
    def reduce(x):
        doubled = 2.0 * x
        reduced = hvd.ops.all_reduce(doubled, name="in_place", op=hvd.Sum)
        return reduced, doubled if is_used else tf.constant(0.0)

    for _ in range(3):
        given = tf.constant(values[hvd.rank()])
        reduced, used = reduce(given)
        same_bits(reduced, 2 * sum(values), "sum")
        same_bits(given, values[hvd.rank()], "argument")
        if is_used:
            same_bits(used, 2 * values[0], "what is used elsewhere")


def check_empty_tensor_and_scalar():
    same_bits(hvd.ops.all_reduce(tf.zeros([0, 3]), name="empty"), np.zeros([0, 3], "f"), "empty")
    values = [3.0, 5.0]
    total = hvd.ops.all_reduce(tf.constant(values[hvd.rank()]), name="scalar", op=hvd.Sum)
    same_bits(total, np.float32(sum(values)), "scalar")


def check_many_tensors_in_flight_in_other_orders():
    @tf.function
    def program(values):
        order = range(20) if hvd.rank() == 0 else reversed(range(20))
        results = {
            index: hvd.ops.all_reduce(values[index], name=f"many.{index}", priority=index % 3)
            for index in order
        }
        return [results[index] for index in range(20)]

    values = [tf.fill([index * 7], float(index + hvd.rank())) for index in range(20)]
    for _ in range(3):
        for index, result in enumerate(program(values)):
            same_bits(result, np.full(index * 7, index + 0.5, "float32"), f"tensor {index}")


def check_bad_input_is_refused():
    with raises(TypeError, "'text'", "string", "float32"):
        hvd.ops.all_reduce(tf.constant("a"), name="text")
    with raises(TypeError, "complex64", "cannot be reduced"):
        hvd.ops.all_reduce(tf.constant([1j], tf.complex64), name="complex")
    with raises(ValueError, "op must be hvd_p3.Sum or hvd_p3.Average"):
        hvd.ops.all_reduce(tf.constant(1.0), name="min", op=hvd.Min)
    hvd.ops.all_reduce(tf.constant([1.0]), name="reused")
    with raises(ValueError, "'reused'", "float32[1]", "float32[2]"):
        hvd.ops.all_reduce(tf.constant([1.0, 2.0]), name="reused")
    with raises(ValueError, "fully known", "unknown"):
        tf.function(
            lambda x: hvd.ops.all_reduce(x, name="unknown"),
            input_signature=[tf.TensorSpec([None], tf.float32)],
        )(tf.constant([1.0]))


def check_disagreement_is_an_error_on_all_ranks():
    mine = tf.zeros([2 + hvd.rank()])
    with raises(tf.errors.FailedPreconditionError, "'lopsided'", "on rank 0", "on rank 1"):
        hvd.ops.all_reduce(mine, name="lopsided")
    mine = tf.zeros([2], tf.float32 if hvd.rank() == 0 else tf.float64)
    with raises(tf.errors.FailedPreconditionError, "'two types'", "float64[2], average on rank 1"):
        hvd.ops.all_reduce(mine, name="two types")
    # The engine goes on.
    same_bits(hvd.ops.all_reduce(tf.ones([2]), name="after"), np.ones(2, "float32"), "after")


def check_initialising_again():
    hvd.ops.all_reduce(tf.ones([3]), name="before shutdown", op=hvd.Sum)
    config = hvd.process.current().config
    with raises(ValueError, "already", "first call of init"):
        hvd.init(slice_bytes=config.slice_bytes + 1)
    hvd.init()  # with the same settings: nothing happens
    assert hvd.is_initialized()
