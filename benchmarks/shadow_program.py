"""What each rank of the benchmark `shadow` runs: training with and without synchronisation.

Started by `shadow.py` with a JSON description as its only argument; rank 0 prints one line of JSON
for each turn of each system. Training is emulated: a step waits for as long as an accelerator would
compute, and then updates all weights on the processor.
"""

import contextlib
import json
import os
import sys
import time

MARK = "BENCHMARK "

_VARIABLE_COUNT = 8
_WARMUP_STEPS = 3


def systems(description):
    """Returns the systems as a dict of name -> callback, or `None` without synchronisation."""
    from hvd_p3 import shadow

    algorithms = {
        "MA": shadow.ModelAveraging,
        "BMUF": lambda: shadow.BlockwiseModelUpdateFiltering(
            eta=description["eta"], block_momentum=description["block_momentum"]
        ),
        "EASGD": shadow.ElasticAveraging,
    }
    made = {"no synchronisation": None}
    for name, algorithm in algorithms.items():
        made[f"S-{name}"] = shadow.ShadowSync(algorithm(), name=f"S-{name}", verbose=0)
    for name, algorithm in algorithms.items():
        made[f"FR-{name}"] = shadow.ForegroundSync(
            algorithm(), every=description["every"], name=f"FR-{name}", verbose=0
        )
    return made


class Training:
    """Emulated training of one rank.

    Args:
        description: dict, see `shadow.py`.
    """

    def __init__(self, description):
        import tensorflow as tf

        elements = int(description["megabytes"] * 1e6 / 4 / _VARIABLE_COUNT)
        self._variables = [tf.Variable(tf.zeros([elements])) for _ in range(_VARIABLE_COUNT)]
        self._update = tf.function(
            lambda: [variable.assign_sub(tf.fill([elements], 1e-6)) for variable in self._variables]
        )
        self._compute_s = description["compute_s"]
        self._batch_size = description["batch_size"]

    def measure(self, callback, seconds):
        """Trains for some seconds; returns this rank's examples per second.

        Args:
            callback: `ShadowSync`, `ForegroundSync` or `None`.
            seconds: float.
        """
        for _ in range(_WARMUP_STEPS):
            self._step()
        context = contextlib.nullcontext()
        if callback is not None:
            context = callback.synchronizing(self._variables)
        with context as training:
            iterations = 0
            start = time.perf_counter()
            while (elapsed := time.perf_counter() - start) < seconds:
                self._step()
                iterations += 1
                if training is not None:
                    training.step(self._batch_size)
        return iterations * self._batch_size / elapsed

    def _step(self):
        time.sleep(self._compute_s)
        self._update()


def main(description):
    import hvd_p3 as hvd

    hvd.init()
    import tensorflow as tf

    training = Training(description)
    callbacks = systems(description)
    for turn in range(description["turns"]):
        for name, callback in callbacks.items():
            hvd.allreduce(tf.zeros([1]), name=f"start.{turn}.{name}")
            mine = training.measure(callback, description["seconds"])
            total = float(hvd.allreduce(tf.constant(mine), op=hvd.Sum, name=f"{turn}.{name}"))
            if hvd.rank() != 0:
                continue
            result = {"system": name, "turn": turn, "examples_per_s": total}
            if callback is not None:
                if callback.error is not None:
                    raise RuntimeError(f"{name} could not synchronise") from callback.error
                result["syncs_per_min"] = callback.report.synchronizations_per_min
                result["sync_gap"] = callback.report.average_sync_gap
            print(MARK + json.dumps(result), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(json.loads(sys.argv[1]))
