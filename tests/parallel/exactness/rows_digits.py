"""The exactness table: the network of examples/keras_digits.py, smaller, for 50 steps."""

import keras
import models
import table
from table import run_row as run_check  # noqa: F401

PREFIX = "row_"
_EPOCHS = 2
_STEPS = 50


def _train(run, optimizer):
    x, y = models.digits_of_this_rank(_STEPS * table.BATCH // _EPOCHS)
    model = models.digits_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    run.compile(model, optimizer, loss=loss)
    run.fit(model, x, y, epochs=_EPOCHS, callbacks=[table.AtBatch(20, run, lambda: None)])
    run.record(f"{_STEPS} steps")
    assert int(optimizer.iterations) == _STEPS


def row_digits_sgd(run):
    _train(run, keras.optimizers.SGD(0.05))


def row_digits_momentum(run):
    _train(run, keras.optimizers.SGD(0.05, momentum=0.9))


def row_digits_adam(run):
    _train(run, keras.optimizers.Adam(1e-3))


def row_digits_adamw(run):
    _train(run, keras.optimizers.AdamW(1e-3, weight_decay=0.01))
