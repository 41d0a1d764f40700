"""Trains on several ranks with ShadowSync; one rank is killed in the middle.

    horovodrun -np 3 python program_shadow.py ALGORITHM RANK

where ALGORITHM is a class of hvd_p3.shadow, and RANK kills itself.
"""

import os
import signal
import sys
import time

import numpy as np
import tensorflow as tf

import hvd_p3 as hvd
from hvd_p3 import shadow

algorithm, killed = getattr(shadow, sys.argv[1]), int(sys.argv[2])
hvd.init()
variable = tf.Variable(np.zeros(100_000, "float32"))
sync = shadow.ShadowSync(algorithm(), timeout_s=1.5)
with sync.synchronizing([variable]) as training:
    for step in range(100):
        if hvd.rank() == killed and step == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        variable.assign_add(tf.ones_like(variable))
        training.step(examples=1)
        time.sleep(0.02)
final = variable.numpy()
print(
    f"rank {hvd.rank()} has finished, {sync.report.ranks if sync.report else sync.error}, "
    f"checksum {float(final.sum())!r}",
    flush=True,
)
