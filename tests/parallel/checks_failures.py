"""Ranks that do not agree get errors and warnings that say so, and can go on. On 2 ranks."""

import contextlib
import os
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from expect import raises

import hvd_p3 as hvd

SETTINGS = {"stall_warning_s": 0.5}


def _train_step(layers):
    """One step of a model that differs between ranks."""
    model = keras.Sequential([keras.Input([4]), *layers])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    model.train_on_batch(np.ones([2, 4]), np.ones([2, layers[-1].units]))


def check_other_width_is_an_error():
    with raises(tf.errors.FailedPreconditionError, "ranks disagree", "on rank 0", "on rank 1"):
        _train_step([keras.layers.Dense(3 + hvd.rank(), name="wide")])


def check_other_layers_are_an_error():
    layers = [keras.layers.Dense(3) for _ in range(1 + hvd.rank())]
    with raises(tf.errors.FailedPreconditionError, "ranks disagree", "on rank 0", "on rank 1"):
        _train_step(layers)


@contextlib.contextmanager
def _standard_error():
    """Yields a function that returns what this process has written to standard error."""
    with tempfile.TemporaryFile() as written:
        kept = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            yield lambda: os.pread(written.fileno(), 1 << 20, 0).decode()
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def check_late_tensor_is_reported_once():
    with _standard_error() as said:
        if hvd.rank() == 1:
            time.sleep(3)
        hvd.ops.all_reduce(tf.ones([2]), name="late")
        output = said()
    if hvd.rank() == 0:
        assert output.count("warning on rank 0: tensor 'late'") == 1, output
        assert "Missing: rank 1" in output, output
    else:
        assert "warning" not in output, output
