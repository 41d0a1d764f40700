"""The callbacks and the context, on one rank."""

import threading
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import hvd_p3 as hvd
from hvd_p3 import shadow
from hvd_p3.shadow import pausing

pytestmark = pytest.mark.usefixtures("one_rank")


def _model():
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def _fit(model, *callbacks, steps=20, **arguments):
    x = np.ones([steps * 4, 3], "float32")
    return model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[*callbacks], **arguments)


def _shadow_threads():
    return [thread for thread in threading.enumerate() if thread.name == "hvd_p3 shadow"]


def _background(**arguments):
    return shadow.ShadowSync(
        shadow.ModelAveraging(), **{"interval_s": 0.0, "verbose": 0, **arguments}
    )


def test_logs_and_report():
    sync = _background(batch_size=4, verbose=1)
    history = _fit(_model(), sync, epochs=2).history
    assert history.keys() == {
        "loss",
        "shadow_examples_per_s",
        "shadow_iterations_per_s",
        "shadow_syncs_per_min",
        "shadow_sync_gap",
    }
    for examples, iterations in zip(
        history["shadow_examples_per_s"], history["shadow_iterations_per_s"], strict=True
    ):
        assert examples == pytest.approx(4 * iterations)
    assert sync.report.ranks == [0]
    assert sync.report.examples_per_s > 0


def test_the_report_is_printed(capsys):
    _fit(_model(), shadow.ForegroundSync(shadow.ElasticAveraging(), every=5, batch_size=4))
    printed = capsys.readouterr().out
    assert "ForegroundSync: 1 ranks, together" in printed
    assert "average sync gap 5.00 iterations" in printed or "gap 4.00 iterations" in printed


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_all_iterations_are_counted(steps_per_execution):
    sync = shadow.ForegroundSync(shadow.ModelAveraging(), every=1, verbose=0)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    _fit(model, sync, steps=12, epochs=2)
    assert sync._session.counts().iterations == 24


def test_threads_end_with_training():
    sync = _background()
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(len(_shadow_threads()))
    )
    model = _model()
    _fit(model, sync, watch)
    _fit(model, sync, watch)
    assert seen == [1, 1]
    assert not _shadow_threads()


def test_training_that_fails_and_begins_again():
    sync = _background()
    model = _model()

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise ArithmeticError

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(ArithmeticError):
            _fit(model, sync, Fail())
        _fit(model, sync)
    assert sync.error is None
    assert sync.report is not None
    assert not _shadow_threads()


def test_the_shadow_thread_ends_when_fit_has_failed():
    """Keras calls no method of callbacks then."""
    sync = _background()

    class Fail(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise ArithmeticError

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(ArithmeticError):
            _fit(_model(), sync, Fail())
        for thread in _shadow_threads():
            thread.join(30)
    assert not _shadow_threads()
    assert "training on this rank has ended with an exception" in str(sync.error)


def test_the_shadow_thread_goes_on_in_a_loop_that_calls_callbacks_itself():
    """Whoever calls them may do so from a function that returns."""
    sync = _background()
    model = _model()
    callbacks = keras.callbacks.CallbackList([sync], model=model)

    def begin():
        callbacks.on_train_begin()

    begin()
    for batch in range(3):
        callbacks.on_train_batch_end(batch)
    callbacks.on_train_end()
    assert sync.error is None
    assert sync.report is not None
    begin()
    sync.abort()
    sync.abort()  # does nothing any more
    assert not _shadow_threads()


def test_the_shadow_thread_ends_when_fit_with_workers_has_failed():
    sync = _background()

    class Fail(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise ArithmeticError

    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x = np.ones([8, 3], "float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    with pytest.raises(ArithmeticError):
        shadow.fit(model, data.batch(4), callbacks=[sync, Fail()])
    assert not _shadow_threads()


def test_nothing_keeps_what_fit_had():
    sync = _background()
    _fit(_model(), sync)
    assert sync._session._watch._frame is None


def test_an_exception_leaves_the_context():
    sync = _background()
    with pytest.raises(ArithmeticError), sync.synchronizing([tf.Variable(0.0)]):
        raise ArithmeticError
    assert not _shadow_threads()
    with sync.synchronizing([tf.Variable(0.0)]):
        pass
    assert sync.report is not None


@pytest.mark.parametrize("foreground", [False, True])
def test_an_algorithm_that_fails_ends_synchronisation_and_not_training(foreground):
    class Broken(shadow.Algorithm):
        stopped = False

        def synchronize(self, weights, group):
            raise ArithmeticError("broken on purpose")

        def stop(self):
            self.stopped = True

    algorithm = Broken(alpha=0.5)
    sync = (
        shadow.ForegroundSync(algorithm, every=2, verbose=0)
        if foreground
        else shadow.ShadowSync(algorithm, verbose=0)
    )
    model = _model()
    with pytest.warns(UserWarning, match="goes on without synchronisation.*broken on purpose"):
        _fit(model, sync)
    assert isinstance(sync.error, ArithmeticError)
    assert sync.report is None
    assert algorithm.stopped
    assert model.optimizer.iterations == 20


def test_an_algorithm_of_a_user():
    class ToZero(shadow.Algorithm):
        collective = False

        def synchronize(self, weights, group):
            return np.zeros_like(weights)

        def finish(self, weights, group):
            return np.full_like(weights, 7)

    model = _model()
    _fit(model, shadow.ShadowSync(ToZero(alpha=1.0), verbose=0))
    assert all(np.all(np.asarray(weight) == 7) for weight in model.weights)


class _ProbedLayer(keras.layers.Dense):
    """Calls `probe`, if there is one, when something wants its weights."""

    probe = staticmethod(lambda: None)

    def save_own_variables(self, store):
        self.probe()
        super().save_own_variables(store)

    def load_own_variables(self, store):
        self.probe()
        super().load_own_variables(store)

    def call(self, inputs):
        self.probe()
        return super().call(inputs)


class _ProbedModel(keras.Sequential):
    @property
    def weights(self):
        self.layers[0].probe()
        return super().weights

    @property
    def trainable_variables(self):
        self.layers[0].probe()
        return super().trainable_variables


@pytest.mark.parametrize("name", pausing.METHODS)
def test_methods_that_save_or_load_pause(name, tmp_path):
    """While such a method runs, the shadow thread does not touch the variables."""
    layer = _ProbedLayer(1, name="dense")
    model = _ProbedModel([keras.Input([3]), layer], name="model")
    model.compile(keras.optimizers.SGD(0.01), "mse")
    model.save_weights(tmp_path / "saved.weights.h5")
    arguments = {
        "save": [tmp_path / "model.keras"],
        "save_weights": [tmp_path / "model.weights.h5"],
        "load_weights": [tmp_path / "saved.weights.h5"],
        "set_weights": [model.get_weights()],
        "export": [tmp_path / "exported", "tf_saved_model", False],
        "set_state_tree": [model.get_state_tree()],
    }.get(name, [])
    free = []
    is_kept = []

    class Call(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weights = sync._session._weights

            def probe():
                lock = weights._lock
                other = threading.Thread(target=lambda: free.append(lock.acquire(blocking=False)))
                other.start()
                other.join()

            vector, ticket = weights.read()
            layer.probe = probe
            getattr(self.model, name)(*arguments)
            del layer.probe
            is_kept.append(weights.add(np.zeros_like(vector), ticket))

    sync = _background()
    _fit(model, sync, Call(), steps=1)
    assert free and not any(free)
    assert is_kept == [not pausing.METHODS[name]], "only what sets weights drops a blend"
    assert name not in vars(model)


def test_a_blend_that_is_dropped_is_not_counted():
    class Replaced(shadow.Algorithm):
        """Others set the variables during each second synchronisation."""

        calls = 0

        def synchronize(self, weights, group):
            self.calls += 1
            if self.calls % 2 == 0:
                with sync.paused():
                    variable.assign([0.0])
            return weights

    variable = tf.Variable([1.0])
    algorithm = Replaced(alpha=1.0)
    sync = shadow.ForegroundSync(algorithm, every=1, verbose=0)
    with sync.synchronizing([variable]) as training:
        for _ in range(6):
            training.step()
        assert training.counts().synchronizations == 3


def test_checkpoints_while_training(tmp_path):
    sync = _background()
    path = tmp_path / "model.keras"
    model = _model()
    _fit(
        model,
        sync,
        keras.callbacks.ModelCheckpoint(path, save_freq=5),
        keras.callbacks.EarlyStopping("loss", restore_best_weights=True, start_from_epoch=0),
        epochs=3,
    )
    assert sync.error is None
    loaded = keras.models.load_model(path)
    assert [weight.shape for weight in loaded.weights] == [weight.shape for weight in model.weights]


def test_no_batches_at_all():
    sync = _background()
    with sync.synchronizing([tf.Variable([1.0, 2.0])]):
        pass
    assert sync.report.examples_per_s == 0


def test_variables_under_p3_are_refused(gated_engine):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    _fit(model, hvd.callbacks.P3Callback(verbose=0), steps=2)
    sync = _background()
    with (
        pytest.raises(ValueError, match="kernel' is trained by a DistributedOptimizer"),
        sync.synchronizing(model),
    ):
        pass
