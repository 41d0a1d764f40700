"""DistributedGradientTape on real ranks."""

import keras
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd


def _gradients(variables, wrap_first, in_graph, **options):
    """Gradients of rank-dependent losses with respect to a nest of variables."""

    def compute():
        tape = tf.GradientTape()
        if wrap_first:
            tape = hvd.DistributedGradientTape(tape, **options)
        with tape:
            flat = tf.nest.flatten(variables)
            loss = sum(tf.reduce_sum(each * (1.0 + hvd.rank())) for each in flat[:-1])
        if not wrap_first:
            tape = hvd.DistributedGradientTape(tape, **options)
        assert isinstance(tape, tf.GradientTape)
        return tape.gradient(loss, variables)

    return tf.function(compute, autograph=False)() if in_graph else compute()


def check_gradients_are_reduced_in_their_structure():
    variables = {
        "keras": keras.Variable(np.ones(3, "float32")),
        "tensorflow": [tf.Variable(tf.ones([2, 2])), tf.Variable(2.0)],
        "unused": tf.Variable(1.0),
    }
    for in_graph in (False, True):
        for wrap_first in (False, True):
            for op, factor in ((hvd.Average, 1.5), (hvd.Sum, 3.0)):
                gradients = _gradients(variables, wrap_first, in_graph, op=op)
                assert gradients["unused"] is None
                same_bits(gradients["keras"], np.full(3, factor, "float32"), "Keras variable")
                matrix, scalar = gradients["tensorflow"]
                same_bits(matrix, np.full((2, 2), factor, "float32"), "matrix")
                same_bits(scalar, np.float32(factor), "scalar")


def check_tensors_and_single_sources():
    x = tf.constant([1.0, 2.0])
    for _ in range(2):
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
            tape.watch(x)
            y = tf.reduce_sum(x * x) * (1.0 + hvd.rank())
        same_bits(tape.gradient(y, x), np.float32([3.0, 6.0]), "gradient of a tensor")
        same_bits(tape.gradient(y, [x])[0], np.float32([3.0, 6.0]), "the same in a list")


def check_sparse_gradient():
    table = tf.Variable(tf.zeros([40, 2]))
    for as_dense in (False, True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), 5, 5]))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense)
        gradient = tape.gradient(loss, table)
        assert isinstance(gradient, tf.IndexedSlices) != as_dense
        expected = np.zeros((40, 2), "float32")
        expected[[0, 1]], expected[5] = 0.5, 2.0
        same_bits(tf.convert_to_tensor(gradient), expected, "gradient of a table")


def check_loop_of_the_user_keeps_ranks_together():
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    hvd.broadcast_variables(model.variables, root_rank=0)
    optimizer = keras.optimizers.Adam(0.01)
    x = tf.random.normal([8, 4])

    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x)))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
    weights = model.get_weights()
    for other in hvd.allgather_object(weights):
        for index, (one, two) in enumerate(zip(weights, other, strict=True)):
            same_bits(one, two, f"variable {index}")


def check_same_weights_as_a_distributed_optimizer():
    x = np.random.default_rng(hvd.rank()).normal(size=(24, 4)).astype("float32")
    weights = []
    for use_tape in (False, True):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="tanh")])
        adam = keras.optimizers.Adam(0.01)
        if not use_tape:
            adam = hvd.DistributedOptimizer(adam)

        @tf.function
        def step(batch, model=model, adam=adam, use_tape=use_tape):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(batch)))
            if use_tape:
                tape = hvd.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, model.trainable_variables)
            adam.apply(gradients, model.trainable_variables)

        adam.build(model.trainable_variables)
        for start in range(0, 24, 4):
            step(x[start : start + 4])
        weights.append([variable.numpy() for variable in model.variables + adam.variables])
    for index, (one, two) in enumerate(zip(*weights, strict=True)):
        same_bits(one, two, f"variable {index}")


def check_jacobians_are_refused():
    x = tf.Variable([1.0, 2.0])
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        y = x * x
    for function in (tape.jacobian, tape.batch_jacobian):
        with raises(NotImplementedError, "plain tf.GradientTape"):
            function(y, x)


def check_gradient_that_one_rank_has_not_is_an_error_on_all():
    first, second = tf.Variable(1.0), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = first * 2.0 + (second if hvd.rank() == 0 else 0.0)
    with raises(tf.errors.FailedPreconditionError, "number of tensors", "rank 0", "rank 1"):
        hvd.DistributedGradientTape(tape).gradient(loss, [first, second])


def check_wrong_arguments():
    with raises(TypeError, "tf.GradientTape", "None"):
        hvd.DistributedGradientTape(None)
    with raises(ValueError, "distributed already"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape()))
    with raises(ValueError, "op must be"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Max)
    with raises(ValueError, "gradient_predivide_factor"):
        hvd.DistributedGradientTape(tf.GradientTape(), gradient_predivide_factor=-1.0)
