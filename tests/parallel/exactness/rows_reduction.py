"""The exactness table: arguments of DistributedOptimizer."""

import keras
import table
import tensorflow as tf
from keras import layers, optimizers
from table import run_row as run_check  # noqa: F401

import hvd_p3 as hvd

PREFIX = "row_"


def _model():
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(6, activation="tanh"),
            layers.Dense(4),
        ]
    )


def _compiled(run, optimizer, **options):
    model = _model()
    model.compile(run.distribute(optimizer, **options), loss="mse")
    run.watch(model)
    return model


def _train(run, optimizer, **options):
    model = _compiled(run, optimizer, **options)
    run.train(model, table.features(), table.targets())


def row_float16_compression(run):
    _train(run, optimizers.Adam(0.01), compression=hvd.Compression.fp16)


def row_bfloat16_compression(run):
    _train(
        run,
        optimizers.SGD(0.1, momentum=0.9, clipnorm=0.05),
        compression=hvd.Compression.bf16,
        gradient_predivide_factor=2.0,
    )


def row_two_backward_passes(run):
    _train(run, optimizers.AdamW(0.01, weight_decay=0.1), backward_passes_per_step=2)


def row_three_averaged_backward_passes_in_float16(run):
    schedule = optimizers.schedules.CosineDecay(0.1, 12)
    model = _compiled(
        run,
        optimizers.Nadam(schedule, use_ema=True, ema_momentum=0.5),
        backward_passes_per_step=3,
        average_aggregated_gradients=True,
        compression=hvd.Compression.fp16,
    )
    seen = table.AtBatch(2, run, lambda: run.record("in the epoch"))
    run.fit(model, table.features(), table.targets(), callbacks=[seen], epochs=2)
    run.record("after it")


@tf.autograph.experimental.do_not_convert
def _always(x, y):
    return True


def row_backward_passes_of_a_dataset_of_unknown_length(run):
    """Keras's train function runs once more at the end of an epoch, and fails for lack of data."""
    # At the end of the first epoch the attempt without data would complete an update.
    model = _compiled(run, optimizers.SGD(0.1, momentum=0.9), backward_passes_per_step=7)
    pairs = (table.features(), table.targets())
    data = tf.data.Dataset.from_tensor_slices(pairs).filter(_always).batch(4)
    for epoch in range(1, 4):
        at = table.AtBatch(epoch - 2, run, lambda: None)
        run.fit(model, data, callbacks=[at], batch_size=None)
        run.record(f"{6 * epoch} steps")
        assert int(model.optimizer.iterations) == 6 * epoch


def row_backward_passes_in_a_loop_inside_the_graph(run):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
    sgd = optimizers.SGD(0.1, momentum=0.9)
    optimizer = run.distribute(sgd, backward_passes_per_step=2)
    run.watch(model)
    optimizer.build(model.trainable_variables)
    if run.overlapped:
        assert optimizer.turn_overlap_on() is None

    @tf.function
    def epoch(x, y):
        total = 0.0
        for index in tf.range(3):
            rows = slice(4 * index, 4 * index + 4)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x[rows], training=True) - y[rows]))
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            total += loss
        return total

    x, y = tf.constant(table.features()), tf.constant(table.targets())
    for index in range(2):
        total = epoch(x, y)
        run.pending_seen |= run.is_pending()
        run.record(f"{3 * index + 3} steps", total)


def row_backward_passes_with_loss_scaling(run):
    scaled = optimizers.LossScaleOptimizer(optimizers.Adam(0.01), initial_scale=2.0**10)
    _train(run, scaled, backward_passes_per_step=2)


def row_local_layer(run):
    model = _model()
    optimizer = run.distribute(optimizers.Adam(0.01))
    for variable in model.layers[-1].trainable_variables:
        optimizer.register_local_var(variable)
    model.compile(optimizer, loss="mse")
    run.watch(model)
    run.train(model, table.features(), table.targets())
    kernels = hvd.allgather_object(model.layers[-1].kernel.numpy())
    assert (kernels[0] != kernels[1]).any()


def row_local_embedding(run):
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(50, 5),
            layers.GlobalAveragePooling1D(),
            layers.Dense(4),
        ]
    )
    optimizer = run.distribute(
        optimizers.SGD(0.1, momentum=0.9), backward_passes_per_step=2, sparse_as_dense=True
    )
    optimizer.register_local_var(model.layers[0].embeddings)
    model.compile(optimizer, loss="mse")
    run.watch(model)
    run.train(model, table.tokens(vocabulary=50), table.targets())


def row_adasum(run):
    _train(run, optimizers.SGD(0.1), op=hvd.Adasum)
