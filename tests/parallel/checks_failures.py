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
from hvd_p3 import _engine

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


def check_other_op_is_an_error():
    ops = ["sum on rank 0", "average on rank 1"]
    with raises(tf.errors.FailedPreconditionError, "tensor 'other op'", *ops):
        op = hvd.Sum if hvd.rank() == 0 else hvd.Average
        hvd.ops.all_reduce(tf.ones([2]), name="other op", op=op)


def _reduce(group, spec, arguments=""):
    (handle,) = _engine.declare_group(group, [spec], arguments)
    value = np.ones(2, "float32")
    _engine.submit(handle, value, np.zeros_like(value)).wait(60.0)


def check_other_scale_is_an_error():
    scales = ["scale", "on rank 0", "on rank 1", "build the same model on all ranks"]
    with raises(_engine.EngineError, "ranks disagree about tensor 'scaled'", *scales):
        scale = 1.0 + hvd.rank()
        _reduce("scaled", ("scaled", "float32", [2], 0, "sum", scale, 1.0))


def check_other_name_is_an_error():
    names = "'a 0' on rank 0; 'a 1' on rank 1"
    with raises(_engine.EngineError, "the name of tensor 0 of 'names'", names):
        _reduce("names", (f"a {hvd.rank()}", "float32", [2], 0, "sum", 1.0, 1.0))


def _apply(**arguments):
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **arguments)
    variable = keras.Variable(tf.zeros([3]))
    optimizer.build([variable])
    optimizer.apply([tf.ones([3])], [variable])


def check_other_arguments_are_an_error():
    for arguments in (
        {"sparse_as_dense": hvd.rank() == 1},
        {"gradient_predivide_factor": 1.0 + hvd.rank()},
        {"compression": [hvd.Compression.none, hvd.Compression.fp16][hvd.rank()]},
        {"op": [hvd.Average, hvd.Sum][hvd.rank()]},
    ):
        remedy = "Give the optimizer or tape the same arguments on all ranks"
        with raises(tf.errors.FailedPreconditionError, "about the arguments of 'optimizer", remedy):
            _apply(**arguments)


def check_rank_that_waits_for_one_with_adasum_gets_an_error():
    """The other is in Horovod's operation meanwhile; it is not, here, so that both can go on."""
    name = "adasum"
    if hvd.rank() == 0:
        _engine.declare_group(name, [], "op=Adasum")
        return
    with raises(_engine.EngineError, "op=Adasum on rank 0; op=Average on rank 1"):
        _reduce(name, ("kernel", "float32", [2], 0, "average", 1.0, 1.0), "op=Average")


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
