"""ShadowSync on real ranks: the ends are common, and what other ranks do keeps nobody waiting."""

import threading
import time
import warnings

import keras
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd
from hvd_p3 import shadow
from hvd_p3.shadow.channel import ANY, ChannelClosedError, open_channel

_OPTIMUM = np.array([[1.0], [-2.0], [0.5]], "float32")
_FEATURES = len(_OPTIMUM)


def _data(steps, batch_size=8):
    """A regression whose examples differ between ranks."""
    random = np.random.default_rng(hvd.rank())
    x = random.normal(size=(steps * batch_size, _FEATURES)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x @ _OPTIMUM)).batch(batch_size)


def _model(**compiled):
    keras.utils.set_random_seed(hvd.rank())  # ranks start differently
    model = keras.Sequential([keras.Input([_FEATURES]), keras.layers.Dense(1)])
    model.compile(**{"optimizer": keras.optimizers.SGD(0.1), "loss": "mse", **compiled})
    return model


def _assert_same_on_all_ranks(model):
    gathered = hvd.allgather_object([np.asarray(weight) for weight in model.weights])
    for rank, weights in enumerate(gathered):
        for mine, theirs in zip(gathered[0], weights, strict=True):
            same_bits(mine, theirs, f"weights of rank 0 and {rank}")


def _assert_learned(model):
    np.testing.assert_allclose(model.weights[0], _OPTIMUM, atol=0.05)


def check_messages_and_sums():
    channel = open_channel("check")
    rank, size = hvd.rank(), hvd.size()
    large = np.arange(1_000_000, dtype="float64") + rank
    channel.send((rank + 1) % size, 7, large)
    channel.send((rank + 1) % size, 7, b"after it")
    sender, tag, message = channel.receive(ANY, 7, 30)
    assert (sender, tag) == ((rank - 1) % size, 7)
    np.testing.assert_array_equal(message.view("float64"), np.arange(1_000_000) + float(sender))
    assert channel.receive(sender, 7, 30)[2].tobytes() == b"after it"
    channel.send(rank, 8, b"")
    assert channel.receive(rank, 8, 30)[2].size == 0
    channel.flush(30)
    for dtype in ("float32", "float64"):
        # Many slices, the last one shorter.
        array = np.arange(300_001, dtype=dtype) % 1000 * (rank + 1)
        channel.all_reduce(array)
        np.testing.assert_array_equal(array, np.arange(300_001) % 1000 * (size * (size + 1) // 2))
    if size > 2 and rank != 1:
        others = [each for each in range(size) if each != 1]
        array = np.full(10, float(rank))
        channel.all_reduce(array, ranks=others)
        assert set(array) == {sum(others)}
    for generation in (1, 2):
        # By messages. No number of elements has equal shares.
        array = np.arange(300_001, dtype="float32") % 7 * (rank + 1)
        channel.all_reduce(array, generation=generation)
        np.testing.assert_array_equal(array, np.arange(300_001) % 7 * (size * (size + 1) // 2))
    short = np.full(1, 0.1 * rank, "float32")  # fewer elements than ranks
    channel.all_reduce(short, generation=2)
    gathered = hvd.allgather_object(short)
    for each in gathered:
        same_bits(each, gathered[0], "a sum by messages")
    np.testing.assert_allclose(short, 0.1 * sum(range(size)), rtol=1e-6)


def check_errors_of_channels():
    channel = open_channel("errors")
    with raises(TimeoutError, "channel 'errors'", "no rank sent a message with tag 5", "0.05 s"):
        channel.receive(ANY, 5, 0.05)
    with raises(ValueError, f"ranks 0 to {hvd.size() - 1}, received rank 99"):
        channel.send(99, 0, b"")
    with raises(ValueError, "in different order", f"'name {hvd.rank()}'"):
        open_channel(f"name {hvd.rank()}")
    ended = []

    def wait():
        try:
            channel.receive(ANY, ANY, -1)
        except ChannelClosedError as error:
            ended.append(str(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    if hvd.rank() == 0:
        with raises(TimeoutError, "did not hear from all ranks within 0.2 s"):
            channel.all_reduce(np.ones(3), timeout_s=0.2)
        with raises(RuntimeError, "no longer possible"):
            channel.all_reduce(np.ones(3))
        with raises(TimeoutError, "did not hear from all ranks within 0.2 s"):
            channel.all_reduce(np.ones(3), timeout_s=0.2, generation=1)
        with raises(RuntimeError, "no longer possible"):
            channel.all_reduce(np.ones(3), generation=1)
    hvd.allgather_object(None)  # as a barrier
    total = np.ones(3)
    channel.all_reduce(total, generation=2)  # what is left of the last one does no harm
    assert total.tolist() == 3 * [hvd.size()]
    channel.close()
    thread.join(10)
    assert ended == ["channel 'errors' is closed on this rank"]


def _check_fit(sync, steps=150):
    model = _model()
    history = model.fit(_data(steps), epochs=2, verbose=0, callbacks=[sync])
    assert sync.error is None
    _assert_same_on_all_ranks(model)
    _assert_learned(model)
    logs = history.history
    assert all(each > 0 for each in logs["shadow_examples_per_s"])
    for name in ("shadow_iterations_per_s", "shadow_syncs_per_min", "shadow_sync_gap"):
        assert len(logs[name]) == 2, name
    assert sync.report.ranks == list(range(hvd.size()))
    assert sync.report.examples_per_s > 0
    return sync.report


def check_model_averaging():
    _check_fit(shadow.ShadowSync(shadow.ModelAveraging(), batch_size=8))


def check_blockwise_model_update_filtering():
    algorithm = shadow.BlockwiseModelUpdateFiltering(eta=0.9)
    _check_fit(shadow.ShadowSync(algorithm, batch_size=8))


def check_elastic_averaging():
    algorithm = shadow.ElasticAveraging(servers=hvd.size() - 1)
    _check_fit(shadow.ShadowSync(algorithm, batch_size=8))


def check_foreground():
    for algorithm in (
        shadow.ModelAveraging(),
        shadow.BlockwiseModelUpdateFiltering(),
        shadow.ElasticAveraging(),
    ):
        report = _check_fit(shadow.ForegroundSync(algorithm, every=5, batch_size=8), steps=30)
        if algorithm.collective:
            assert report.average_sync_gap == 5


def check_model_that_is_built_by_its_first_batch():
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    sync = shadow.ShadowSync(shadow.ModelAveraging(), verbose=0)
    model.fit(_data(100), verbose=0, callbacks=[sync])
    _assert_same_on_all_ranks(model)
    _assert_learned(model)


def check_the_same_callback_twice():
    sync = shadow.ShadowSync(shadow.ElasticAveraging(), verbose=0)
    for _ in range(2):
        model = _model()
        model.fit(_data(20), verbose=0, callbacks=[sync])
        assert sync.error is None
        _assert_same_on_all_ranks(model)


def check_ranks_that_finish_early_and_ranks_that_are_slow():
    """The first rank has few steps; the last one does no sixth step before all others have done
    all of theirs, which would never be if their training waited for it."""
    last = hvd.size() - 1
    steps = 10 if hvd.rank() == 0 else 60
    channel = open_channel("slow")

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if hvd.rank() < last and batch == steps - 1:
                channel.send(last, 1, b"all done")
            elif hvd.rank() == last and batch == 4:
                for rank in range(last):
                    channel.receive(rank, 1, 60)

    for algorithm in (shadow.ModelAveraging(), shadow.ElasticAveraging()):
        model = _model()
        sync = shadow.ShadowSync(algorithm, timeout_s=30, verbose=0)
        model.fit(_data(steps), verbose=0, callbacks=[Slow(), sync])
        assert sync.error is None
        assert sync.report.ranks == list(range(hvd.size()))
        _assert_same_on_all_ranks(model)


def check_an_exception_in_fit_that_is_caught():
    """The other ranks go on among themselves, and finish; later all begin anew."""
    last = hvd.size() - 1

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 5:
                raise ArithmeticError("failed on purpose")

    for algorithm in (shadow.ModelAveraging(), shadow.ElasticAveraging()):
        sync = shadow.ShadowSync(algorithm, verbose=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if hvd.rank() == last:
                with raises(ArithmeticError, "failed on purpose"):
                    _model().fit(_data(20), verbose=0, callbacks=[Fail(), sync])
                end = time.monotonic() + 60
                while sync.error is None and time.monotonic() < end:
                    time.sleep(0.01)
                assert "ended with an exception" in str(sync.error)
            else:
                _model().fit(_data(20), verbose=0, callbacks=[sync])
                assert sync.report.ranks == list(range(last))
                said = [str(each.message) for each in caught]
                assert any(f"rank {last} has ended synchronisation" in each for each in said), said
        model = _model()
        model.fit(_data(20), verbose=0, callbacks=[sync])
        assert sync.report.ranks == list(range(hvd.size()))
        _assert_same_on_all_ranks(model)


def check_ranks_with_different_numbers_of_steps_in_the_foreground():
    model = _model()
    sync = shadow.ForegroundSync(shadow.ModelAveraging(), every=3, verbose=0)
    model.fit(_data(10 + 20 * hvd.rank()), verbose=0, callbacks=[sync])
    assert sync.error is None
    _assert_same_on_all_ranks(model)


def check_loop_of_your_own():
    variable = tf.Variable(np.full([_FEATURES, 1], float(hvd.rank()), "float32"))
    sync = shadow.ShadowSync(shadow.ModelAveraging(), verbose=0)
    with sync.synchronizing([variable]) as training:
        assert not variable.numpy().any(), "all start as rank 0"
        for x, y in _data(150):
            error = x @ variable - y
            variable.assign_sub(0.1 * tf.matmul(x, error, transpose_a=True) / len(x))
            training.step(examples=len(x))
    gathered = hvd.allgather_object(variable.numpy())
    for each in gathered:
        same_bits(each, gathered[0], "the variable")
    np.testing.assert_allclose(gathered[0], _OPTIMUM, atol=0.05)
    assert sync.report.examples_per_s > 0


def check_hogwild_workers():
    model = _model(jit_compile=False)
    sync = shadow.ShadowSync(shadow.ModelAveraging(), batch_size=8, verbose=0)
    history = shadow.fit(model, _data(200), workers=2, epochs=2, callbacks=[sync])
    assert sync.error is None
    _assert_same_on_all_ranks(model)
    _assert_learned(model)
    assert len(history.history["shadow_examples_per_s"]) == 2


def check_saving_and_loading_while_training():
    """Between the beginning and the end of a pause nothing else changes the variables."""

    class Replace(keras.callbacks.Callback):
        replaced = 0

        def on_train_batch_end(self, batch, logs=None):
            if batch % 10 == 5:
                values = [np.full([_FEATURES, 1], float(batch)), np.full([1], float(batch))]
                with sync.paused():
                    self.model.set_weights(values)
                    time.sleep(0.01)
                    for mine, expected in zip(self.model.get_weights(), values, strict=True):
                        np.testing.assert_array_equal(mine, expected)
                self.replaced += 1

    replace = Replace()
    model = _model()
    sync = shadow.ShadowSync(shadow.ModelAveraging(), interval_s=0.0, verbose=0)
    with sync.paused():  # before there is anything to pause
        pass
    model.fit(_data(100), verbose=0, callbacks=[replace, sync])
    assert sync.error is None
    assert replace.replaced == 10
    assert "set_weights" not in vars(model)
    _assert_same_on_all_ranks(model)


def check_weights_that_another_callback_restores_before_the_end():
    """As the documentation says: `ShadowSync` comes last."""
    model = _model()
    stopping = keras.callbacks.EarlyStopping(
        f"loss of rank {hvd.rank()}", mode="min", patience=3, restore_best_weights=True
    )
    # The best epochs of ranks differ.
    log = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update({stopping.monitor: abs(epoch - hvd.rank())})
    )
    sync = shadow.ShadowSync(shadow.ModelAveraging(), verbose=0)
    model.fit(_data(10), epochs=3, verbose=0, callbacks=[log, stopping, sync])
    assert stopping.best_epoch == hvd.rank()
    _assert_same_on_all_ranks(model)


def check_beside_p3_in_one_job():
    """A model under P3 has the same bits with ShadowSync at work on other variables."""

    def train_with_p3():
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.Input([_FEATURES]), keras.layers.Dense(50, "relu"), keras.layers.Dense(1)]
        )
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(_data(20), verbose=0, callbacks=[hvd.callbacks.P3Callback(verbose=0)])
        assert model.optimizer.is_overlapped()
        return model.get_weights()

    expected = train_with_p3()
    variable = tf.Variable(np.full(100_000, float(hvd.rank()), "float32"))
    sync = shadow.ShadowSync(shadow.ModelAveraging(), interval_s=0.0, name="beside P3", verbose=0)
    with sync.synchronizing([variable]) as training:
        variable.assign_add(tf.fill([100_000], float(hvd.rank())))
        actual = train_with_p3()
        training.step()
    for one, other in zip(expected, actual, strict=True):
        same_bits(other, one, "weights under P3")
    np.testing.assert_allclose(variable.numpy(), (hvd.size() - 1) / 2, rtol=1e-5)
    assert sync.report.synchronizations_per_min > 0


def check_bad_arguments():
    with raises(TypeError, "needs an algorithm", "Received: 'average'"):
        shadow.ShadowSync("average")
    for arguments in ({"interval_s": -1}, {"batch_size": 0}, {"timeout_s": 0}):
        ((name, value),) = arguments.items()
        with raises(ValueError, f"{name}={value}"):
            shadow.ShadowSync(shadow.ModelAveraging(), **arguments)
    for every in (0, 1.5):
        with raises(ValueError, f"every={every}"):
            shadow.ForegroundSync(shadow.ModelAveraging(), every=every)
    sync = shadow.ShadowSync(shadow.ModelAveraging(), verbose=0)
    model = _model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    with raises(ValueError, "not wrapped in hvd_p3.DistributedOptimizer"):
        model.fit(_data(1), verbose=0, callbacks=[sync])
    with raises(ValueError, "ranks synchronise different variables", "on rank 0"):
        sync_of = sync.synchronizing([tf.Variable(np.zeros(1 + hvd.rank()))])
        with sync_of:
            pass
    with raises(ValueError, "servers"):
        wrong = shadow.ShadowSync(shadow.ElasticAveraging(servers=99), verbose=0)
        _model().fit(_data(1), verbose=0, callbacks=[wrong])
