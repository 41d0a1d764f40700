"""Trains models with one system on this rank, and times the steps."""

import dataclasses
import os
import resource
import time
import types

import horovod.tensorflow as horovod
import keras
import numpy as np
import tensorflow as tf

from benchmarks import timeline
from benchmarks.workloads import digits, replay
from hvd_p3_tools.planner import fit
from hvd_p3_tools.planner import model_tables as models

_LEARNING_RATE = 1e-3
# Of replayed models, whose gradients are used again: TensorFlow may scale them where they lie.
_REPLAYED_LEARNING_RATE = 1.0
# Of Horovod: up to what its fused buffers may hold of the models here.
_ALL_REDUCE_SIZES = tuple(4**power for power in range(6, 14))  # bytes, 4 KiB to 64 MiB
_ALL_REDUCE_REPEATS = 3


class StepTimer(keras.callbacks.Callback):
    """Times the steps after some to warm up, and the processor time of this process.

    A step is the time from the end of one to the end of the next: in overlapped mode its
    communication reaches into the next step, so no shorter span has all of one. Of the steps of one
    execution it knows the mean.

    Args:
        warmup: int. Steps that are not timed.
        steps_per_execution: int. As the model's.
    """

    def __init__(self, warmup, steps_per_execution):
        super().__init__()
        self._warmup = warmup
        self._steps_per_execution = steps_per_execution
        self.ends = []
        self.cpu_s = []

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 >= self._warmup:
            self.ends.append(time.perf_counter())
            self.cpu_s.append(processor_seconds())

    def step_s(self):
        return (np.diff(self.ends) / self._steps_per_execution).tolist()

    def cpu_s_per_step(self):
        executions = len(self.cpu_s) - 1
        return (self.cpu_s[-1] - self.cpu_s[0]) / (executions * self._steps_per_execution)


def replayed_step_s(measurement):
    """Returns the times of the measured steps as a replayed model has recorded them, in seconds.

    Each is from the beginning of the forward pass before to that of its own, so one of each
    execution contains Keras's code between two executions.
    """
    recorded = replay.last_steps(table_of(measurement), measurement["steps"] + 1)
    return np.diff([step[0]["start_s"] for step in recorded]).tolist()


def processor_seconds():
    """User and system time of this process so far, of all its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class HorovodOptimizer(keras.optimizers.SGD):
    """What Horovod's DistributedOptimizer does, for Keras 3, on which it does not run: reduces each
    gradient with an operation of its own within the step, then applies all."""

    def apply(self, gradients, trainable_variables=None):
        reduced = [
            horovod.allreduce(
                gradient, op=horovod.Average, name=f"gradient.{index}", ignore_name_scope=True
            )
            for index, gradient in enumerate(gradients)
        ]
        return super().apply(reduced, trainable_variables)


def compile_for(system, model, loss, learning_rate, steps_per_execution):
    """Compiles a model for a system; returns the callbacks that the system's users would add."""
    if system["family"] == "hvd_p3":
        import hvd_p3  # not in the processes of the other systems, see rank_program.py

        optimizer = hvd_p3.DistributedOptimizer(keras.optimizers.SGD(learning_rate))
    elif system["family"] == "keras":
        optimizer = keras.optimizers.SGD(learning_rate)
    else:
        optimizer = HorovodOptimizer(learning_rate)
    model.compile(optimizer, loss=loss, jit_compile=False, steps_per_execution=steps_per_execution)
    optimizer.build(model.trainable_variables)
    if system["overlapped"]:
        return [hvd_p3.callbacks.P3Callback(verbose=0)]
    return []


def make_workload(measurement):
    """Returns model, loss and endless dataset of a measurement."""
    if measurement["model"] == "digits":
        return digits.make_model(), "sparse_categorical_crossentropy", digits.make_data()
    return replay.make_model(table_of(measurement)), "mse", replay.make_data()


def table_of(measurement):
    """Returns the table of the model that a measurement replays."""
    return models.scaled(models.load(measurement["model"]), measurement["scale"])


def measure_training(system, measurement):
    """Trains one model, once for each computation time; yields a dict for each."""
    model, loss, data = make_workload(measurement)
    is_replayed = measurement["model"] in models.names()
    learning_rate = _REPLAYED_LEARNING_RATE if is_replayed else _LEARNING_RATE
    # Without a record of each step, an execution of several would give one figure.
    several = measurement["steps_per_execution"] if is_replayed else 1
    callbacks = compile_for(system, model, loss, learning_rate, several)
    slow = horovod.rank() == horovod.size() - 1
    for compute_s in measurement["compute_s"]:
        replay.set_step_time(compute_s * (measurement["straggler"] if slow else 1.0))
        timer = StepTimer(measurement["warmup"], several)
        steps = measurement["warmup"] + measurement["steps"]
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[*callbacks, timer])
        if system["overlapped"] and not model.optimizer.is_overlapped():
            raise SystemExit("overlapped mode was asked for, but training was immediate")
        result = {
            "compute_s": compute_s,
            "step_s": (
                replayed_step_s(measurement) if is_replayed and several > 1 else timer.step_s()
            ),
            "cpu_s": mean_over_ranks(timer.cpu_s_per_step()),
            "bytes": sum(4 * int(np.prod(each.shape)) for each in model.trainable_variables),
        }
        if system["family"] == "hvd_p3":
            from hvd_p3 import _engine

            settings = _engine.current_settings()
            result["settings"] = [settings["slice_bytes"], settings["credit_bytes"]]
        if measurement["timeline"]:
            result["timeline"] = one_step(system, measurement)
        yield result


def one_step(system, measurement):
    """Returns what ran when in the step before the last, as an entry of the results' timelines."""
    table = table_of(measurement)
    computation, following = replay.last_steps(table, 3)[1:]
    start_s, end_s = computation[0]["start_s"], following[0]["start_s"]
    if system["family"] == "hvd_p3":
        import hvd_p3

        return timeline.from_engine_trace(
            hvd_p3.take_trace(),
            computation,
            start_s,
            end_s,
            system=system["name"],
            model=measurement["model"],
        )
    path = os.environ["HOROVOD_TIMELINE"]
    names = [f"gradient.{i}" for i in range(sum(len(each.variables) for each in table.layers))]
    layers = [index for index, each in enumerate(table.layers) for _ in each.variables]
    # Horovod writes the time of the day.
    shift = timeline.horovod_timeline_start(path) - (time.time() - time.monotonic())
    time.sleep(1)  # until Horovod's writer has written what ran so far
    communication = [
        {**each, "start_s": each["start_s"] + shift, "end_s": each["end_s"] + shift}
        for each in timeline.from_horovod_timeline(path, dict(zip(names, layers, strict=True)))
    ]
    return timeline.make_entry(
        system["name"], measurement["model"], communication, computation, start_s, end_s
    )


def measure_tensors(system, measurement):
    """Reduces many small tensors again and again, without a model; yields one dict."""
    count = int(measurement["model"].partition("-")[2])
    tensors = {index: tf.fill([256], float(index)) for index in range(count)}
    if system["family"] == "hvd_p3":
        import hvd_p3

        options = hvd_p3.reduction_options.ReductionOptions("tensors")
        reducer = hvd_p3.reduction.GradientReducer(options)
        # Of its variables a reducer needs names, shapes and devices alone.
        reducer.build(
            [
                types.SimpleNamespace(path=f"tensor_{i}", shape=tensor.shape, device=tensor.device)
                for i, tensor in tensors.items()
            ]
        )
        reducer.priorities = list(tensors)
        reduce = tf.function(lambda: list(reducer.reduce(tensors).values()))
    else:
        reduce = tf.function(
            lambda: [horovod.allreduce(tensors[i], name=f"tensor.{i}") for i in range(count)]
        )
    step_s = []
    for step in range(measurement["warmup"] + measurement["steps"]):
        if step == measurement["warmup"]:
            cpu_s = processor_seconds()
        start = time.perf_counter()
        reduce()
        step_s.append(time.perf_counter() - start)
    cpu_s = (processor_seconds() - cpu_s) / measurement["steps"]
    yield {
        "compute_s": 0.0,
        "step_s": step_s[measurement["warmup"] :],
        "cpu_s": mean_over_ranks(cpu_s),
        "bytes": 1024 * count,
    }


def measure_all_reduce(system):
    """Reduces one tensor after another of several sizes; yields the `AllReduceFit` as a dict."""
    if system["family"] == "hvd_p3":
        import hvd_p3.planner

        yield {"fit": dataclasses.asdict(hvd_p3.planner.measure_all_reduce())}
        return
    tensors = {size: tf.zeros([size // tf.float32.size]) for size in _ALL_REDUCE_SIZES}

    def all_reduce(size):
        horovod.allreduce(tensors[size], name=f"all-reduce of {size}").numpy()

    fitted = fit.measure_all_reduce(
        all_reduce, horovod.size(), _ALL_REDUCE_SIZES, _ALL_REDUCE_REPEATS
    )
    yield {"fit": dataclasses.asdict(fitted)}


def mean_over_ranks(value):
    if horovod.size() == 1:
        return value
    return float(horovod.allreduce(tf.constant(value, tf.float64), name="mean_over_ranks"))


def measure(system, measurement):
    """Yields a dict for each result of a measurement."""
    keras.backend.clear_session()
    if measurement["model"].startswith("tensors-"):
        yield from measure_tensors(system, measurement)
    elif measurement["model"] == "all-reduce":
        yield from measure_all_reduce(system)
    else:
        yield from measure_training(system, measurement)
