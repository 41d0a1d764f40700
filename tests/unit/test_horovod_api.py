"""What users of Horovod's Keras API have, on one rank."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

import hvd_p3
from hvd_p3 import collectives


def _model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
    return model


def test_not_initialised():
    assert hvd_p3.mpi_built()
    for function in (hvd_p3.mpi_enabled, hvd_p3.mpi_threads_supported, hvd_p3.join):
        with pytest.raises(ValueError, match=r"hvd_p3.init\(\)"):
            function()
    for function in (hvd_p3.allgather, hvd_p3.reducescatter, hvd_p3.alltoall):
        with pytest.raises(ValueError, match=r"hvd_p3.init\(\)"):
            function([1.0])
    for function in (hvd_p3.grouped_allreduce, hvd_p3.grouped_allgather):
        with pytest.raises(ValueError, match=r"hvd_p3.init\(\)"):
            function([])
    with pytest.raises(ValueError, match=r"hvd_p3.init\(\)"):
        hvd_p3.add_process_set([0])
    with pytest.raises(ValueError, match=r"hvd_p3.init\(\)"):
        hvd_p3.load_model("model.keras")


def test_collectives_of_one_rank(one_rank):
    np.testing.assert_array_equal(hvd_p3.allreduce([1.0, 2.0]), [1, 2])
    np.testing.assert_array_equal(hvd_p3.allgather([1, 2]), [1, 2])
    np.testing.assert_array_equal(hvd_p3.broadcast([1, 2], 0), [1, 2])
    np.testing.assert_array_equal(hvd_p3.reducescatter([1.0, 2.0]), [1, 2])
    assert hvd_p3.is_homogeneous() and hvd_p3.gloo_enabled() and not hvd_p3.mpi_enabled()
    assert int(hvd_p3.join()) == 0


def test_common_steps_of_one_rank(one_rank):
    dataset = tf.data.Dataset.range(5).batch(2)
    assert hvd_p3.data.common_steps(dataset) == 3
    assert int(hvd_p3.data.equal_batches(dataset, longest=True).cardinality()) == 3
    for wrong in (1.5, True, -1, "3"):
        with pytest.raises(TypeError, match="common_steps needs"):
            hvd_p3.data.common_steps(wrong)
    with pytest.raises(ValueError, match="infinite"):
        hvd_p3.data.common_steps(dataset.repeat())


def test_elastic_state(one_rank):
    model = _model()
    state = hvd_p3.elastic.KerasState(model, epoch=0)
    assert model.optimizer.built
    before = model.get_weights()
    model.fit(np.ones((2, 2)), np.ones((2, 3)), verbose=0)
    state.epoch = 1
    state.restore()
    assert (state.epoch, int(model.optimizer.iterations)) == (0, 0)
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    model.fit(np.ones((2, 2)), np.ones((2, 3)), verbose=0)
    state.epoch = 1
    state.commit()
    after = model.get_weights()
    model.fit(np.ones((2, 2)), np.ones((2, 3)), verbose=0)
    state.restore()
    assert state.epoch == 1
    for one, other in zip(model.get_weights(), after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_elastic_state_refuses_what_it_cannot_keep(one_rank):
    with pytest.raises(ValueError, match="model that is built"):
        hvd_p3.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="needs an optimizer"):
        hvd_p3.elastic.KerasState(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="session"):
        hvd_p3.elastic.TensorFlowState(variables=[tf.Variable(1.0)], session="session")
    with pytest.raises(ValueError, match="batches_per_commit"):
        hvd_p3.elastic.CommitStateCallback(None, batches_per_commit=0)


def test_elastic_run(one_rank, monkeypatch):
    state = hvd_p3.elastic.ObjectState(epoch=0)

    @hvd_p3.elastic.run
    def fail(state):
        state.epoch = 5
        raise HorovodInternalError("a collective failed")

    with pytest.raises(HorovodInternalError):
        fail(state)
    assert state.epoch == 0
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    with pytest.raises(RuntimeError, match="hosts come and go"):
        fail(state)


@pytest.mark.parametrize("arguments", [{"epochs": 2}, {"initial_epoch": 3, "epochs": 5}])
def test_elastic_callbacks_count(one_rank, arguments):
    commits = []

    class State(hvd_p3.elastic.ObjectState):
        def commit(self):
            super().commit()
            commits.append((self.epoch, self.batch))

    state = State(epoch=arguments.get("initial_epoch", 0), batch=0)
    first = state.epoch
    callbacks = [
        hvd_p3.elastic.UpdateBatchStateCallback(state),
        hvd_p3.elastic.UpdateEpochStateCallback(state),
        hvd_p3.elastic.CommitStateCallback(state, batches_per_commit=2),
    ]
    _model().fit(
        np.ones((6, 2)), np.ones((6, 3)), batch_size=2, verbose=0, callbacks=callbacks, **arguments
    )
    # Three batches an epoch: batches 2 and 4 of the training, and each end of an epoch.
    assert commits == [
        (first, 1),
        (first + 1, 0),
        (first + 1, 0),
        (first + 1, 2),
        (first + 2, 0),
    ]


def test_variables_are_broadcast_once_for_each_model_and_optimizer(one_rank, monkeypatch):
    broadcasts = []
    monkeypatch.setattr(
        collectives, "broadcast_variables", lambda variables, _: broadcasts.append(len(variables))
    )
    callback = hvd_p3.callbacks.BroadcastGlobalVariablesCallback(0)

    def fit(model):
        model.fit(np.ones((2, 2)), np.ones((2, 3)), callbacks=[callback], verbose=0)
        return len(broadcasts)

    first, second = _model(), _model()
    assert [fit(each) for each in (first, first, second, second)] == [1, 1, 2, 2]
    second.compile(second.optimizer, loss="mae")
    assert fit(second) == 2
    second.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mae")
    assert fit(second) == 3
    assert fit(first) == 4
    assert broadcasts[0] == broadcasts[1] == len(first.variables) + len(first.optimizer.variables)


def test_sync_batch_normalization_of_one_rank(one_rank):
    with pytest.raises(ValueError, match="fused"):
        hvd_p3.SyncBatchNormalization(fused=True)
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    plain, synchronised = keras.layers.BatchNormalization(), hvd_p3.SyncBatchNormalization()
    np.testing.assert_array_equal(synchronised(x, training=True), plain(x, training=True))


def test_best_model_checkpoint_by_batches(one_rank, tmp_path):
    best = hvd_p3.callbacks.BestModelCheckpoint(
        monitor="loss", save_freq=1, filepath=tmp_path / "best-{epoch}-{batch}.keras"
    )
    model = _model()
    x = np.ones((6, 2), "float32")
    model.fit(x, np.ones((6, 3)), batch_size=2, epochs=2, callbacks=[best], verbose=0)
    assert len(list(tmp_path.glob("best-*.keras"))) >= 2
    assert best.best <= model.history.history["loss"][-1]
