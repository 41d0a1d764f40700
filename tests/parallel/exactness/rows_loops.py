"""The exactness table: training loops, and what happens between and after steps."""

import contextlib
import os
import pathlib

import keras
import numpy as np
import table
import tensorflow as tf
from keras import layers
from table import run_row as run_check  # noqa: F401

import hvd_p3 as hvd
from hvd_p3.variables import resource_of

PREFIX = "row_"


def _model():
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(6, use_bias=False),
            layers.BatchNormalization(),
            layers.Dense(4),
        ]
    )


def _adam():
    return keras.optimizers.Adam(0.01)


def _compiled(run, **options):
    model = _model()
    run.compile(model, _adam(), **options)
    return model, table.features(), table.targets()


def row_train_on_batch(run):
    model, x, y = _compiled(run, jit_compile=False)
    run.fit(model, x[:8], y[:8])
    for step in range(4):
        part = slice(4 * step, 4 * step + 4)
        loss = model.train_on_batch(x[part], y[part])
        run.pending_seen |= run.is_pending()
        if step % 2:
            run.record(f"{step} steps", loss)
    run.record("end", model.test_on_batch(x[:4], y[:4]), model.predict_on_batch(x[:4]))


def row_several_steps_per_execution(run):
    model, x, y = _compiled(run, steps_per_execution=3)
    seen = table.AtBatch(2, run, lambda: run.record("3 steps"))
    for _ in range(2):
        run.fit(model, x, y, callbacks=[seen])
        run.record("6 steps")


def row_run_eagerly(run):
    model, x, y = _compiled(run, run_eagerly=True)
    run.fit(model, x[:12], y[:12])
    run.record("3 steps")


def _build(run, model, optimizer):
    """What a loop of one's own does before it traces its step."""
    run.watch(model)
    optimizer.build(model.trainable_variables)
    if run.overlapped:
        assert optimizer.turn_overlap_on() is None


def row_own_loop(run):
    model = _model()
    optimizer = run.distribute(keras.optimizers.SGD(0.1, momentum=0.9))
    _build(run, model, optimizer)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    x, y = table.features(), table.targets()
    for index in range(6):
        part = slice(4 * index, 4 * index + 4)
        loss = step(x[part], y[part])
        run.pending_seen |= run.is_pending()
        if index in (0, 3, 5):
            run.record(f"{index + 1} steps", loss, model(x[:4]))


def row_own_loop_inside_the_graph(run):
    model = _model()
    optimizer = run.distribute(_adam())
    _build(run, model, optimizer)

    @tf.function
    def epoch(x, y):
        total = 0.0
        for index in tf.range(3):
            rows = slice(4 * index, 4 * index + 4)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x[rows], training=True) - y[rows]))
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            total += loss + tf.reduce_sum(tf.convert_to_tensor(variables[0]))
        return total

    x, y = table.features(), table.targets()
    for index in range(2):
        total = epoch(tf.constant(x), tf.constant(y))
        run.pending_seen |= run.is_pending()
        run.record(f"{3 * index + 3} steps", total)


def row_validation_evaluation_and_prediction(run):
    model, x, y = _compiled(run)
    seen = []

    def in_the_epoch():
        seen.append(model.evaluate(x[:8], y[:8], verbose=0))
        seen.append(model.predict(x[:4], verbose=0))
        seen.append(model(x[:4]).numpy())

    middle = table.AtBatch(2, run, in_the_epoch)
    history = keras.callbacks.History()
    run.fit(model, x, y, callbacks=[middle, history], epochs=2, validation_data=(x[:8], y[:8]))
    run.record("12 steps", *seen, history.history["val_loss"], history.history["loss"])


def row_early_stopping_restores_the_best_weights(run):
    model, x, y = _compiled(run)
    model.optimizer.learning_rate = 2.0  # gets worse soon
    stop = keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
    run.fit(model, x, y, callbacks=[stop, table.AtBatch(2, run, lambda: None)], epochs=6)
    run.record("stopped", stop.best_epoch, stop.stopped_epoch)


def row_exception_in_an_epoch_and_going_on(run):
    model, x, y = _compiled(run)

    def fail():
        raise ArithmeticError("on purpose")

    for _ in range(2):
        with contextlib.suppress(ArithmeticError):
            run.fit(model, x, y, callbacks=[table.AtBatch(2, run, fail)])
        run.record("3 steps")
    run.fit(model, x[:8], y[:8])
    run.record("6 steps")


def row_backup_and_restore(run):
    model, x, y = _compiled(run)
    folder = os.path.join(run.folder, "backup")

    def fail():
        raise ArithmeticError("on purpose")

    def backup():
        return keras.callbacks.BackupAndRestore(folder, save_freq=2, delete_checkpoint=False)

    with contextlib.suppress(ArithmeticError):
        run.fit(model, x, y, callbacks=[backup(), table.AtBatch(4, run, fail)], epochs=2)
    model.set_weights([np.zeros_like(each) for each in model.get_weights()])
    run.fit(model, x, y, callbacks=[backup()], epochs=2)
    run.record("restored")


def row_checkpoints_every_two_batches(run):
    model, x, y = _compiled(run)
    path = os.path.join(run.folder, "{epoch}-{batch}.weights.h5")
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=2)
    run.fit(model, x, y, callbacks=[table.AtBatch(0, run, lambda: None), checkpoint])
    run.record("6 steps")
    for batch in (2, 4, 6):
        model.load_weights(path.format(epoch=1, batch=batch))
        run.record(f"{batch} steps")


def row_save_load_and_go_on(run):
    model, x, y = _compiled(run)
    path = os.path.join(run.folder, "model.keras")
    run.fit(model, x, y, callbacks=[table.AtBatch(2, run, lambda: model.save(path))])
    loaded = keras.models.load_model(path)
    run.record("saved", *[variable.numpy() for variable in loaded.variables])
    assert not isinstance(loaded.optimizer, type(model.optimizer))
    loaded.compile(run.distribute(loaded.optimizer), loss="mse")
    run.watch(loaded)
    run.fit(loaded, x, y)
    run.record("went on")


def row_tensorflow_checkpoint(run):
    model, x, y = _compiled(run)
    variables = [each.value for each in (*model.variables, *model.optimizer.variables)]
    checkpoint = tf.train.Checkpoint(model=model, raw=variables)
    path = []

    def save():
        path.append(checkpoint.save(os.path.join(run.folder, "checkpoint")))

    run.fit(model, x, y, callbacks=[table.AtBatch(2, run, save)])
    run.record("6 steps")
    model.train_on_batch(x[:4], y[:4])  # leaves updates pending, which restoring must not mix in
    checkpoint.restore(path[0])
    run.record("3 steps")
    run.fit(model, x, y)
    run.record("9 steps")


def row_arithmetic_with_weights_and_momenta_between_steps(run):
    """Eager ops on variables, whose results are written back."""
    model, x, y = _compiled(run)
    seen = []

    def decay():
        kernel = model.layers[0].kernel
        seen.append(tf.reduce_sum(kernel.value))
        seen.append(kernel**2 - 1.0)
        for variable in model.optimizer.variables[2:]:
            variable.assign(variable * 0.5)
        kernel.assign(kernel * 0.9)
        model.layers[2].kernel.value.assign(tf.transpose(tf.transpose(model.layers[2].kernel)))

    run.fit(model, x, y, callbacks=[table.AtBatch(2, run, decay)])
    run.record("6 steps", *seen)


@tf.autograph.experimental.do_not_convert
def _always(x, y):
    return True


def row_dataset_of_unknown_length(run):
    """Keras's train function runs once more at the end of an epoch, and fails for lack of data."""
    model, x, y = _compiled(run)
    data = tf.data.Dataset.from_tensor_slices((x, y)).take(24).repeat(1).filter(_always).batch(4)
    for epoch in range(1, 4):
        run.fit(model, data, callbacks=[table.AtBatch(2, run, lambda: None)], batch_size=None)
        run.record(f"{6 * epoch} steps")
        assert int(model.optimizer.iterations) == 6 * epoch


def row_weights_read_and_set_between_steps(run):
    model, x, y = _compiled(run)

    def swap():
        weights = model.get_weights()
        weights[0] = weights[0] * 0.5
        model.set_weights(weights)
        model.layers[2].kernel.assign(tf.ones([6, 4]))
        model.layers[1].beta.assign_add(tf.ones([6]))
        model.layers[2].bias.value.assign_sub(tf.ones([4]))

    run.fit(model, x, y, callbacks=[table.AtBatch(2, run, swap)])
    run.record("6 steps")


def row_clone_in_an_epoch(run):
    model, x, y = _compiled(run)
    clones = []

    def clone():
        clone = keras.models.clone_model(model)
        clone.set_weights(model.get_weights())
        clones.append(clone)

    run.fit(model, x, y, callbacks=[table.AtBatch(2, run, clone)])
    clones[0].compile(run.distribute(_adam()), loss="mse")
    run.watch(clones[0])
    run.fit(clones[0], x, y)
    run.record("cloned")


def row_export_in_an_epoch_and_after(run):
    model, x, y = _compiled(run)
    outputs = []

    def export():
        folder = os.path.join(run.folder, f"export{len(outputs)}")
        model.export(folder, verbose=False)
        outputs.append(_served(folder, x[:4]))
        module = tf.Module()
        module.kept = [variable.value for variable in model.variables]
        module.serve = tf.function(
            lambda features: model(features),
            autograph=False,
            input_signature=[tf.TensorSpec([None, 8], tf.float32)],
        )
        folder = os.path.join(run.folder, f"saved{len(outputs)}")
        tf.saved_model.save(module, folder)
        outputs.append(_served(folder, x[:4]))

    run.fit(model, x, y, callbacks=[table.AtBatch(2, run, export)])
    export()
    run.record("exported", *outputs)


def _served(folder, x):
    assert b"HvdP3" not in pathlib.Path(folder, "saved_model.pb").read_bytes()
    loaded = tf.saved_model.load(folder)
    return loaded.serve(x)


def row_functions_of_the_user_between_batches(run):
    """A function traced before training, a kept variable and settle, at each batch."""
    model, x, y = _compiled(run)
    raw = model.layers[0].kernel.value
    total = tf.function(lambda: tf.reduce_sum(raw) + tf.reduce_sum(model(x[:4])), autograph=False)
    total()
    seen = []

    class Read(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            run.pending_seen |= run.is_pending()
            seen.append([total, lambda: raw, self.settled][batch % 3]())

        def settled(self):
            hvd.settle(model)
            assert not run.is_pending()
            return tf.raw_ops.ReadVariableOp(resource=resource_of(raw), dtype=tf.float32)

    run.fit(model, x, y, callbacks=[Read()])
    run.record("6 steps", *[np.asarray(each) for each in seen])
