"""Horovod's collectives through hvd_p3, and the callbacks that use them, on Keras variables."""

import keras
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd


def check_ranks():
    assert hvd.size() == 2
    assert hvd.rank() in (0, 1)
    assert hvd.local_size() == 2
    assert hvd.local_rank() == hvd.rank()
    assert hvd.cross_size() == 1
    assert hvd.cross_rank() == 0


def check_collectives_on_tensors_and_keras_variables():
    mine = np.float32([1, 2]) + hvd.rank()
    variable = keras.Variable(mine)
    for source in (tf.constant(mine), variable, tf.Variable(mine)):
        kind = type(source).__name__
        total = hvd.allreduce(source, op=hvd.Sum, name=f"allreduce.{kind}")
        same_bits(total, np.float32([3, 5]), f"allreduce of {kind}")
        gathered = hvd.allgather(source, name=f"allgather.{kind}")
        same_bits(gathered, np.float32([1, 2, 2, 3]), f"allgather of {kind}")
        received = hvd.broadcast(source, root_rank=1, name=f"broadcast.{kind}")
        same_bits(received, np.float32([2, 3]), f"broadcast of {kind}")


def check_bfloat16_which_horovod_does_not_know():
    mine = tf.cast([1.0, 2.0], tf.bfloat16) + hvd.rank()
    variable = keras.Variable(mine, dtype="bfloat16")
    for source in (mine, variable):
        kind = type(source).__name__
        total = hvd.allreduce(source, op=hvd.Sum, name=f"bfloat16.allreduce.{kind}")
        same_bits(total, tf.cast([3, 5], tf.bfloat16), f"allreduce of {kind}")
        gathered = hvd.allgather(source, name=f"bfloat16.allgather.{kind}")
        same_bits(gathered, tf.cast([1, 2, 2, 3], tf.bfloat16), f"allgather of {kind}")
        received = hvd.broadcast(source, root_rank=1, name=f"bfloat16.broadcast.{kind}")
        same_bits(received, tf.cast([2, 3], tf.bfloat16), f"broadcast of {kind}")
    hvd.broadcast_variables([variable, keras.Variable(1.0)], root_rank=1)
    same_bits(variable.numpy(), tf.cast([2, 3], tf.bfloat16), "broadcast variable")


def check_objects():
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=1) == {"rank": 1}
    assert hvd.allgather_object(f"rank {hvd.rank()}") == ["rank 0", "rank 1"]


def check_broadcast_variables():
    variables = [keras.Variable(np.full(3, hvd.rank(), "float32")), tf.Variable(hvd.rank())]
    hvd.broadcast_variables(variables, root_rank=1)
    same_bits(variables[0].numpy(), np.ones(3, "float32"), "Keras variable")
    assert int(variables[1]) == 1
    for wrong in (2, -1, "0", True):
        with raises(ValueError, "root_rank", "from 0 to 1", repr(wrong)):
            hvd.broadcast_variables(variables, root_rank=wrong)


def check_broadcast_callback():
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0, momentum=0.9))
    model.compile(optimizer, loss="mse")
    before = model.get_weights()[0]
    weights = hvd.broadcast(tf.constant(before), root_rank=1, name="weights of rank 1").numpy()
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(1)
    model.fit(np.ones((4, 2)), np.ones((4, 3)), callbacks=[callback], verbose=0)
    same_bits(model.get_weights()[0], weights, "weights after a step of learning rate 0")
    with raises(ValueError, "root_rank", "7"):
        hvd.callbacks.BroadcastGlobalVariablesCallback(7)


def check_metric_average_callback():
    callback = hvd.callbacks.MetricAverageCallback()
    logs = {"loss": 1.0 + hvd.rank(), "accuracy": float(hvd.rank()), "note": "text"}
    callback.on_epoch_end(0, logs)
    assert logs == {"loss": 1.5, "accuracy": 0.5, "note": "text"}
    with raises(ValueError, "same metrics", "rank 1"):
        callback.on_epoch_end(1, {"loss": 1.0} if hvd.rank() == 0 else {"other": 1.0})


def check_unknown_arguments():
    with raises(ValueError, "process_sets", "comm=[0]"):
        hvd.init(comm=[0])
    with raises(TypeError, "slice_byte", "did you mean slice_bytes"):
        hvd.init(slice_byte=1)
