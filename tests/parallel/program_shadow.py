"""Trains on several ranks with two kinds of ShadowSync at once; some are killed in the middle.

    horovodrun -np 4 python program_shadow.py RANK SECONDS RANK SECONDS ...

where each RANK kills itself SECONDS after the middle. Those that are left train a second time.
"""

import contextlib
import os
import signal
import sys
import threading
import time

import numpy as np
import tensorflow as tf

import hvd_p3 as hvd
from hvd_p3 import shadow

killed = dict(zip(map(int, sys.argv[1::2]), map(float, sys.argv[2::2]), strict=True))
hvd.init()
algorithms = [shadow.ModelAveraging(), shadow.ElasticAveraging()]
callbacks = [
    shadow.ShadowSync(algorithm, timeout_s=1.5, name=type(algorithm).__name__, verbose=0)
    for algorithm in algorithms
]


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def train(steps):
    variables = [tf.Variable(np.full(100_000, hvd.rank(), "float32")) for _ in algorithms]
    with contextlib.ExitStack() as stack:
        trainings = [
            stack.enter_context(callback.synchronizing([variable]))
            for callback, variable in zip(callbacks, variables, strict=True)
        ]
        for step in range(steps):
            if hvd.rank() in killed and step == steps // 2:
                threading.Timer(killed[hvd.rank()], kill_self).start()
            for variable, training in zip(variables, trainings, strict=True):
                variable.assign_add(tf.ones_like(variable))
                training.step(examples=1)
            time.sleep(0.02)
    for callback, variable in zip(callbacks, variables, strict=True):
        outcome = callback.report.ranks if callback.report else callback.error
        checksum = float(np.sum(variable.numpy(), dtype="float64"))
        # One write for each line, so that ranks do not mix theirs.
        sys.stdout.write(
            f"{callback.name} on rank {hvd.rank()}: {outcome}, checksum {checksum!r}\n"
        )
        sys.stdout.flush()


train(100)
train(10)
