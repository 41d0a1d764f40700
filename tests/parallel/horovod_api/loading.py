"""`load_model` after training in overlapped mode."""

import tempfile

import keras
import models
from expect import same_bits

import hvd_p3 as hvd


def _fit(model):
    x, y = models.digits_of_this_rank(32)
    # Without shuffling, so that both trainings see the same batches.
    model.fit(
        x,
        y,
        batch_size=8,
        shuffle=False,
        callbacks=[hvd.callbacks.P3Callback(verbose=0)],
        verbose=0,
    )
    assert model.optimizer.is_overlapped()


def check_loaded_model_continues_bit_for_bit():
    model = models.digits_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9), op=hvd.Sum), loss=loss
    )
    saved = []

    class Save(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:  # updates are pending
                saved.append(f"{folder}/{hvd.rank()}.keras")
                self.model.save(saved[0])

    with tempfile.TemporaryDirectory() as folder:
        x, y = models.digits_of_this_rank(16)
        model.fit(
            x,
            y,
            batch_size=8,
            shuffle=False,
            callbacks=[hvd.callbacks.P3Callback(verbose=0), Save()],
            verbose=0,
        )
        assert model.optimizer.is_overlapped()
        loaded = hvd.load_model(saved[0], op=hvd.Sum)
    assert type(loaded.optimizer).__name__ == "SGD"
    _assert_equal(loaded, model)
    _fit(loaded)
    _fit(model)
    _assert_equal(loaded, model)
    assert int(loaded.optimizer.iterations) == 6


def _assert_equal(loaded, model):
    pairs = [*zip(loaded.variables, model.variables, strict=True)]
    pairs += zip(loaded.optimizer.variables, model.optimizer.variables, strict=True)
    for one, other in pairs:
        same_bits(one.numpy(), other.numpy(), other.path)
