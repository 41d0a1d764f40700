"""State of the elastic API."""

import keras
import models
import numpy as np
from expect import raises, same_bits

import hvd_p3 as hvd


def check_objects_and_variables_of_rank_0():
    objects = hvd.elastic.ObjectState(epoch=hvd.rank() + 3, names=[hvd.rank()])
    objects.sync()
    assert (objects.epoch, objects.names) == (3, [0])
    objects.names.append("uncommitted")
    objects.restore()
    assert objects.names == [0]
    variable = keras.Variable(np.full(2, hvd.rank(), "float32"))
    state = hvd.elastic.TensorFlowState(variables=[variable], step=hvd.rank())
    state.sync()
    same_bits(variable.numpy(), np.zeros(2, "float32"), "variable")
    assert state.step == 0
    with raises(ValueError, "needs variables"):
        hvd.elastic.TensorFlowState()


def _compiled(seed):
    model = models.digits_model(seed)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
    model.compile(optimizer, loss=loss)
    return model


def _values(model):
    return [each.numpy() for each in (*model.variables, *model.optimizer.variables)]


def check_commit_in_the_middle_of_overlapped_training():
    """What is committed are the weights of the step; what comes after it is undone."""
    model = _compiled(seed=0)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    x, y = models.digits_of_this_rank(32)
    committed = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1 and not committed:
                committed.extend(_values(self.model))

    def fit(*callbacks):
        model.fit(
            x,
            y,
            batch_size=8,
            shuffle=False,
            callbacks=[hvd.callbacks.P3Callback(verbose=0), *callbacks],
            verbose=0,
        )
        assert model.optimizer.is_overlapped()

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                raise InterruptedError

    update = hvd.elastic.UpdateBatchStateCallback(state)
    commit = hvd.elastic.CommitStateCallback(state, batches_per_commit=2)
    with raises(InterruptedError):
        fit(update, commit, Look(), Stop())
    assert state.batch == 2
    state.restore()
    assert state.batch == 1
    assert int(model.optimizer.iterations) == 2
    for one, other in zip(_values(model), committed, strict=True):
        same_bits(one, other, "restored")
    # Training from there leaves what training without the interruption leaves.
    x, y = x[16:], y[16:]
    fit()
    reference = _compiled(seed=0)
    all_x, all_y = models.digits_of_this_rank(32)
    callbacks = [hvd.callbacks.P3Callback(verbose=0)]
    reference.fit(all_x, all_y, batch_size=8, shuffle=False, callbacks=callbacks, verbose=0)
    for one, other in zip(_values(model), _values(reference), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def check_run_synchronises_first():
    model = _compiled(seed=hvd.rank())

    @hvd.elastic.run
    def train(state, epochs, factor=1):
        for one, other in zip(_values(model), hvd.broadcast_object(_values(model)), strict=True):
            same_bits(one, other, "synchronised")
        x, y = models.digits_of_this_rank(16)
        model.fit(
            x,
            y,
            batch_size=8,
            initial_epoch=state.epoch,
            epochs=epochs,
            callbacks=[
                hvd.callbacks.P3Callback(verbose=0),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=100),
            ],
            verbose=0,
        )
        return factor * state.epoch

    state = hvd.elastic.KerasState(model, epoch=0)
    assert train(state, 2, factor=10) == 20
    assert train(state, 3) == 3
    state.epoch = 7
    state.restore()
    assert state.epoch == 3
