"""A training program that goes wrong on request, for test_failures.py.

    program_train.py WHAT [RANK]

WHAT, and what happens on RANK:
    long        trains for minutes
    embedding   the same with sparse gradients, which Horovod gathers within the step
    metrics     stays away from MetricAverageCallback
    raise       raises an exception in the middle of an epoch
    exit        calls sys.exit(3) there
    leave       calls sys.exit(0) there
    fewer       runs fewer steps
    settings    has another slice size
    version     has another version of hvd_p3
    adasum      has another op
    alone       submits a tensor of its own before it goes on
    memory      has no memory for a large tensor that all ranks reduce

If the variable CHECKPOINTS names a folder, rank 0 saves the model there after each epoch.
"""

import atexit
import os
import resource
import sys
import time
from pathlib import Path

what = sys.argv[1]
failing_rank = int(sys.argv[2]) if len(sys.argv) > 2 else -1
if what == "settings" and os.environ.get("OMPI_COMM_WORLD_RANK") == str(failing_rank):
    os.environ["HVD_P3_SLICE_BYTES"] = "1000"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import psutil  # noqa: E402
import tensorflow as tf  # noqa: E402

import hvd_p3 as hvd  # noqa: E402
from hvd_p3 import agreement  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import models  # noqa: E402

_LARGE = 64 * 1024 * 1024  # elements; 256 MiB
# A rank that ends, ends so much later: the launcher then ends the others, which have said why.
_LAST_WORDS_S = 5


class _GoWrong(keras.callbacks.Callback):
    announced = False

    def _announce(self):
        if not self.announced:
            self.announced = True
            print(f"rank {hvd.rank()} is training as process {os.getpid()}", flush=True)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 3 and what != "metrics":
            self._announce()
        if batch == 5 and hvd.rank() == failing_rank:
            if what == "raise":
                raise ArithmeticError("this rank fails on purpose")
            if what == "exit":
                sys.exit(3)
            if what == "leave":
                sys.exit(0)
            if what == "alone":
                hvd.ops.all_reduce(tf.ones([3]), name="of one rank")

    def on_epoch_end(self, epoch, logs=None):
        if what == "metrics":
            self._announce()
            if hvd.rank() == failing_rank:
                time.sleep(1000)


def _reduce_large_tensor():
    large = tf.zeros([_LARGE])
    if hvd.rank() == failing_rank:
        used = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (used + _LARGE, used + _LARGE))
    hvd.ops.all_reduce(large, name="large")


def _model_and_data():
    if what == "embedding":
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Embedding(1000, 4), keras.layers.Flatten(), keras.layers.Dense(10)]
        model = keras.Sequential([keras.Input((2,), dtype="int32"), *layers])
        return model, np.arange(160).reshape(80, 2), np.zeros(80, "int32")
    x, y = models.digits_of_this_rank(80)
    if what == "fewer" and hvd.rank() == failing_rank:
        x, y = x[:40], y[:40]
    return models.digits_model(), x, y


def main():
    failing = os.environ.get("OMPI_COMM_WORLD_RANK") == str(failing_rank)
    if failing:
        atexit.register(time.sleep, _LAST_WORDS_S)  # after hvd_p3's own, which ends the engine
        if what == "version":
            agreement.HVD_P3_VERSION = "0.0.0"
    hvd.init()
    if what == "memory":
        _reduce_large_tensor()
    model, x, y = _model_and_data()
    op = hvd.Adasum if what == "adasum" and failing else hvd.Average
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), op=op),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    callbacks = [hvd.callbacks.P3Callback(verbose=0), _GoWrong()]
    if what == "metrics":
        callbacks.append(hvd.callbacks.MetricAverageCallback())
    if "CHECKPOINTS" in os.environ:
        path = Path(os.environ["CHECKPOINTS"], "{epoch}.keras")
        callbacks.append(hvd.callbacks.ModelCheckpoint(path))
    epochs = 100000 if what in ("long", "embedding") else 2
    model.fit(x, y, batch_size=8, epochs=epochs, callbacks=callbacks, verbose=0)
    print(f"rank {hvd.rank()} has finished", flush=True)


if __name__ == "__main__":
    main()
