"""The ways to train that the example compares, each on a new model with the same start."""

import dataclasses
import time

import keras
import numpy as np
import tensorflow as tf
from ctr.click_stream import HELD_OUT, TRAINING
from ctr.dlrm import build_dlrm
from ctr.normalized_entropy import NormalizedEntropy

import hvd_p3 as hvd

_ALGORITHMS = {
    "ma": lambda settings: hvd.shadow.ModelAveraging(settings.alpha),
    "bmuf": lambda settings: hvd.shadow.BlockwiseModelUpdateFiltering(
        settings.alpha, settings.eta, settings.block_momentum
    ),
    "easgd": lambda settings: hvd.shadow.ElasticAveraging(settings.alpha),
}
_HELD_OUT_BATCH_SIZE = 1000

NAMES = [
    "none",
    *(f"s-{algorithm}" for algorithm in _ALGORITHMS),
    *(f"fr-{algorithm}" for algorithm in _ALGORITHMS),
    "p3",
]


@dataclasses.dataclass
class Result:
    """What one way of training has brought.

    Args:
        name: str.
        seed: int, of the clicks.
        examples_per_s: float, of all ranks together, without the time of the first batch.
        normalized_entropy: float, on the held-out stream.
        synchronizations_per_min: Optional float, of one rank. `None` where it has no meaning.
        average_sync_gap: Optional float, iterations between two synchronisations.
    """

    name: str
    seed: int
    examples_per_s: float
    normalized_entropy: float
    synchronizations_per_min: float | None = None
    average_sync_gap: float | None = None


class _Stopwatch(keras.callbacks.Callback):
    """The batches per second of this rank, from the end of its first batch, which is traced."""

    def on_train_begin(self, logs=None):
        self._times = []

    def on_train_batch_end(self, batch, logs=None):
        self._times.append(time.monotonic())

    def batches_per_s(self):
        return (len(self._times) - 1) / (self._times[-1] - self._times[0])


def load_of_this_rank(stream, settings):
    """Returns this rank's share of the training stream as arrays: dense features, rows, clicks."""
    batches = [
        stream.batch(TRAINING, step * hvd.size() + hvd.rank(), settings.batch_size)
        for step in range(settings.batches)
    ]
    return [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]


def run(name, stream, data, settings):
    """Trains a new model, and evaluates it.

    Args:
        name: One of `NAMES`.
        stream: `ClickStream`.
        data: What `load_of_this_rank` has returned.
        settings: The program's arguments.

    Returns:
        A `Result`, the same on all ranks.
    """
    embedding = hvd.shadow.ShardedEmbedding(
        stream.total_rows,
        settings.width,
        optimizer=hvd.shadow.RowwiseAdagrad(settings.embedding_rate),
        name="embedding",
    )
    model = build_dlrm(stream.dense_features, len(stream.rows), embedding)
    optimizer = keras.optimizers.Adagrad(
        settings.p3_rate if name == "p3" else settings.rate, initial_accumulator_value=0.01
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    dense, rows, clicks = data
    dataset = tf.data.Dataset.from_tensor_slices(((dense, rows), clicks))
    dataset = dataset.batch(settings.batch_size, drop_remainder=True)
    stopwatch = _Stopwatch()
    sync = None
    if name == "p3":
        model.compile(hvd.DistributedOptimizer(optimizer), loss, jit_compile=False)
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.P3Callback(verbose=0),
            stopwatch,
        ]
        model.fit(dataset, shuffle=False, callbacks=callbacks, verbose=0)
    else:
        model.compile(optimizer, loss, jit_compile=False)
        sync = _synchronization(name, settings)
        callbacks = [stopwatch] if sync is None else [stopwatch, sync]
        hvd.shadow.fit(model, dataset, workers=settings.workers, callbacks=callbacks)
    embedding.table.flush()  # the updates of this rank are applied,
    _wait_for_all(name)  # and those of all others
    result = Result(
        name,
        stream.seed,
        settings.batch_size * _sum_over_ranks(stopwatch.batches_per_s()),
        _evaluate(model, stream, settings),
    )
    if sync is not None and sync.report is not None:
        result.synchronizations_per_min = sync.report.synchronizations_per_min
        result.average_sync_gap = sync.report.average_sync_gap
    _wait_for_all(name)
    embedding.release()
    return result


def best_possible(stream, settings):
    """Returns the normalised entropy of the true probabilities on the held-out stream."""
    metric = NormalizedEntropy()
    for index in range(settings.held_out_batches):
        dense, rows, clicks = stream.batch(HELD_OUT, index, _HELD_OUT_BATCH_SIZE)
        probabilities = stream.probabilities(dense, rows)
        metric.add(clicks, np.log(probabilities) - np.log1p(-probabilities))
    return metric.result()


def _synchronization(name, settings):
    if name == "none":
        return None
    way, algorithm = name.split("-")
    algorithm = _ALGORITHMS[algorithm](settings)
    if way == "s":
        return hvd.shadow.ShadowSync(algorithm, interval_s=settings.interval, verbose=0)
    return hvd.shadow.ForegroundSync(algorithm, every=settings.every, verbose=0)


def _evaluate(model, stream, settings):
    """Each rank evaluates its own model on its share of the held-out stream."""
    mine = NormalizedEntropy()
    for index in range(hvd.rank(), settings.held_out_batches, hvd.size()):
        dense, rows, clicks = stream.batch(HELD_OUT, index, _HELD_OUT_BATCH_SIZE)
        mine.add(clicks, model.predict_on_batch([dense, rows]))
    of_all = NormalizedEntropy()
    of_all.add_totals(_sum_over_ranks(mine.totals))
    return of_all.result()


def _sum_over_ranks(value):
    return hvd.allreduce(tf.constant(value, tf.float64), op=hvd.Sum, name="ctr.sum").numpy()


def _wait_for_all(name):
    hvd.allreduce(tf.constant(0.0), name=f"ctr.{name}")
