"""What hvd_p3 adds to a training step and to its tracing, beside the communication.

    python benchmarks/overhead.py                     # plain Keras and a wrapped optimizer
    horovodrun -np 2 python benchmarks/overhead.py    # and both modes, and a timeline

Trains ResNet-50 on random images. The variants take turns, with some steps each, so that a busy
machine disturbs all alike. All updates of a turn are applied within its time. The table has medians
and their ratio to plain Keras. A step of more than one rank includes the reduction.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time

import keras
import numpy as np
import rich.console
import rich.progress
import rich.table

import hvd_p3 as hvd

_STEPS_OF_A_TURN = 4


class Variant:
    """One way to train the model.

    Args:
        name: str, for the table.
        arguments: Of the command line.
        distributed: bool. Whether the optimizer is wrapped.
        overlapped: bool. Whether overlapped mode is turned on.
        timeline: bool. Whether a timeline is recorded while steps are timed.
    """

    def __init__(self, name, arguments, distributed, overlapped=False, timeline=False):
        self.name = name
        self._timeline = timeline
        keras.utils.set_random_seed(0)
        size = arguments.image_size
        self._model = keras.applications.ResNet50(
            weights=None, input_shape=(size, size, 3), classes=10
        )
        optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
        if distributed:
            optimizer = hvd.DistributedOptimizer(optimizer)
        self._model.compile(optimizer, loss="sparse_categorical_crossentropy", jit_compile=False)
        optimizer.build(self._model.trainable_variables)
        reason = optimizer.turn_overlap_on() if overlapped else None
        if reason is not None:
            raise SystemExit(f"cannot measure overlapped mode: {reason}")
        random = np.random.default_rng(hvd.rank())
        self._x = random.random((arguments.batch, size, size, 3), "float32")
        self._y = random.integers(10, size=arguments.batch)
        self.trace_seconds = []
        self.step_seconds = []

    def trace(self):
        """Times the first step of a new function: tracing, graph optimization and one step."""
        self._model.make_train_function(force=True)
        self.trace_seconds.append(self._time(steps=1))

    def turn(self):
        """Times some steps."""
        with self._recording() if self._timeline else contextlib.nullcontext():
            self.step_seconds.append(self._time(_STEPS_OF_A_TURN) / _STEPS_OF_A_TURN)

    @contextlib.contextmanager
    def _recording(self):
        with tempfile.TemporaryDirectory() as folder:
            hvd.start_timeline(os.path.join(folder, "timeline.json"))
            yield
            hvd.stop_timeline()

    def _time(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self._model.train_on_batch(self._x, self._y)
        hvd.settle(self._model)
        return time.perf_counter() - start


def measure(arguments):
    """Returns the variants, with their times."""
    variants = [Variant("plain Keras", arguments, distributed=False)]
    if hvd.size() == 1:
        variants.append(Variant("hvd_p3, one rank", arguments, distributed=True))
    else:
        variants.append(Variant("hvd_p3, immediate", arguments, distributed=True))
        variants.append(Variant("hvd_p3, overlapped", arguments, distributed=True, overlapped=True))
        variants.append(Variant("the same, with a timeline", arguments, True, True, timeline=True))
    # The first trace of a process, and the first steps of a function, also warm up TensorFlow.
    work = [Variant.trace] * (1 + arguments.traces) + [Variant.turn] * (1 + arguments.turns)
    for task in rich.progress.track(work, "measuring", disable=hvd.rank() != 0):
        for variant in variants:
            task(variant)
    return variants


def table(variants):
    """Returns a `rich.table.Table` of medians."""
    result = rich.table.Table(title=f"ResNet-50 on {hvd.size()} rank(s)")
    for heading in ("", "step (s)", "ratio", "tracing (s)", "ratio"):
        result.add_column(heading, justify="right" if heading else "left")
    steps, traces = [], []
    for variant in variants:
        steps.append(statistics.median(variant.step_seconds[1:]))
        traces.append(statistics.median(variant.trace_seconds[1:]) - steps[-1])
        result.add_row(
            variant.name,
            f"{steps[-1]:.3f}",
            f"{steps[-1] / steps[0]:.3f}",
            f"{traces[-1]:.2f}",
            f"{traces[-1] / traces[0]:.3f}",
        )
    return result


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=8, help="images of a rank (default 8)")
    parser.add_argument(
        "--image-size", type=int, default=64, help="pixels, 32 or more (default 64)"
    )
    parser.add_argument("--turns", type=int, default=15, help="turns to measure (default 15)")
    parser.add_argument("--traces", type=int, default=3, help="traces to measure (default 3)")
    arguments = parser.parse_args()
    hvd.init()
    variants = measure(arguments)
    if hvd.rank() == 0:
        rich.console.Console(width=80).print(table(variants))


if __name__ == "__main__":
    main()
