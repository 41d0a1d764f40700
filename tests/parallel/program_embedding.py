"""Looks up rows for a while; for test_embedding.py.

program_embedding.py raise    # on 2 ranks: rank 1 ends with an exception, rank 0 goes on
program_embedding.py fewer    # on 2 ranks: rank 1 trains fewer steps with P3 than rank 0
    program_embedding.py leave    # on 3 ranks: rank 2 is killed, rank 1 ends long before rank 0
"""

import os
import signal
import sys
import time

import keras
import numpy as np

import hvd_p3 as hvd

_STEPS = 100


def _train(layer, ids, steps):
    for _ in range(steps):
        layer.table.look_up(ids)
        layer.table.update(ids, np.ones((len(ids), 2)))
        time.sleep(0.02)


def _raise(layer):
    if hvd.rank() == 1:
        _train(layer, np.arange(9), 2)
        raise ArithmeticError("this rank fails on purpose")
    _train(layer, np.arange(9), 1000)


def _fewer(layer):
    model = keras.Sequential([keras.Input((1,), dtype="int32"), layer, keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    steps = 2 if hvd.rank() == 1 else 500
    model.fit(np.zeros((steps, 1)), np.zeros((steps, 1, 1)), batch_size=1, verbose=0)


def _leave(layer):
    _train(layer, np.arange(9), 1)  # all are there
    if hvd.rank() == 2:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.8)
    try:
        layer.table.look_up(np.array([5]))
    except RuntimeError as error:
        print(f"rank {hvd.rank()} has received: {error}", flush=True)
    if hvd.rank() == 1:
        print("rank 1 is at its end", flush=True)
        return
    ids = np.array([0, 1, 3, 4, 6, 7])  # not those of rank 2
    before = layer.table.look_up(ids)
    _train(layer, ids, _STEPS)
    assert np.array_equal(layer.table.look_up(ids), before - _STEPS)


def main(what):
    hvd.init()
    layer = hvd.shadow.ShardedEmbedding(
        9,
        2,
        optimizer=hvd.shadow.SparseSGD(1.0),
        embeddings_initializer="zeros",
        timeout_s=1.5 if what == "leave" else 60.0,
        name="users",
    )
    layer.build()
    {"raise": _raise, "fewer": _fewer, "leave": _leave}[what](layer)
    if hvd.rank() == 0:
        print("rank 0 has finished", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
