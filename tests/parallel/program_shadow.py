"""Trains on several ranks with two kinds of ShadowSync at once; one rank is killed in the middle.

    horovodrun -np 3 python program_shadow.py RANK

where RANK kills itself.
"""

import contextlib
import os
import signal
import sys
import time

import numpy as np
import tensorflow as tf

import hvd_p3 as hvd
from hvd_p3 import shadow

killed = int(sys.argv[1])
hvd.init()
algorithms = [shadow.ModelAveraging(), shadow.ElasticAveraging()]
variables = [tf.Variable(np.zeros(100_000, "float32")) for _ in algorithms]
callbacks = [
    shadow.ShadowSync(algorithm, timeout_s=1.5, name=type(algorithm).__name__, verbose=0)
    for algorithm in algorithms
]
with contextlib.ExitStack() as stack:
    trainings = [
        stack.enter_context(callback.synchronizing([variable]))
        for callback, variable in zip(callbacks, variables, strict=True)
    ]
    for step in range(100):
        if hvd.rank() == killed and step == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        for variable, training in zip(variables, trainings, strict=True):
            variable.assign_add(tf.ones_like(variable))
            training.step(examples=1)
        time.sleep(0.02)
for callback, variable in zip(callbacks, variables, strict=True):
    outcome = callback.report.ranks if callback.report else callback.error
    checksum = float(np.sum(variable.numpy(), dtype="float64"))
    # One write for each line, so that ranks do not mix theirs.
    sys.stdout.write(f"{callback.name} on rank {hvd.rank()}: {outcome}, checksum {checksum!r}\n")
    sys.stdout.flush()
