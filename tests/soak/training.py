"""What the soak test reduces through TensorFlow: overlapped optimizers, tensors of all dtypes."""

import keras
import numpy as np
import tensorflow as tf
from engine_tensors import random_length

import hvd_p3 as hvd
from hvd_p3 import ops

_VARIABLES = 8
_STEPS = 3
_TENSORS_OF_A_DTYPE = 2


def _total(number):
    """The sum over ranks of `number + rank`."""
    return hvd.size() * number + hvd.size() * (hvd.size() - 1) // 2


class OverlappedTraining:
    """An optimizer in overlapped mode, whose gradients on rank r are `number + r`: sums are exact.

    Args:
        name: str. The same on all ranks.
        shared: `random.Random` that yields the same on all ranks.
        compression: As in `hvd_p3.DistributedOptimizer`.
    """

    def __init__(self, name, shared, compression):
        self._variables = [
            keras.Variable(np.zeros(random_length(shared), "float32"), name=f"{name}_{index}")
            for index in range(_VARIABLES)
        ]
        self._optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), name, op=hvd.Sum, compression=compression
        )
        self._optimizer.build(self._variables)
        assert self._optimizer.turn_overlap_on() is None
        self._step = tf.function(self._train_step, autograph=False)
        self._expected = 0

    def _train_step(self, gradient):
        with tf.GradientTape() as tape:
            natives = [variable.value for variable in self._variables]
            loss = sum(tf.reduce_sum(native * gradient) for native in natives)
        self._optimizer.apply(tape.gradient(loss, natives))

    def step(self, number):
        """A step, whose updates the next one applies."""
        number %= 10
        self._step(tf.constant(number + hvd.rank(), tf.float32))
        self._expected -= _total(number)

    def check(self):
        """Compares the weights, which settles them, and starts again from zeros."""
        for variable in self._variables:
            assert np.all(variable.numpy() == self._expected), variable.name
            variable.assign(tf.zeros_like(variable.value))
        self._expected = 0


class Reductions:
    """Tensors of all dtypes, which `hvd_p3.ops.all_reduce` reduces in a function and eagerly.

    Args:
        shared: `random.Random` that yields the same on all ranks.
    """

    def __init__(self, shared):
        self._lengths = {
            (dtype, index): random_length(shared)
            for dtype in ops.REDUCIBLE_DTYPES
            for index in range(_TENSORS_OF_A_DTYPE)
        }
        self.trace()

    def trace(self):
        """Makes the function anew, which declares its tensors again."""
        self._function = tf.function(
            lambda value: [self._reduce(key, value) for key in self._lengths], autograph=False
        )

    def _reduce(self, key, value):
        dtype, index = key
        tensor = tf.fill([self._lengths[key]], tf.cast(value, dtype))
        return ops.all_reduce(tensor, f"soak.{dtype.name}.{index}", index, hvd.Sum)

    def check(self, number):
        """Reduces all tensors in a function and one by itself; compares every element."""
        value = tf.constant(number % 10 + hvd.rank())
        reduced = self._function(value)
        keys = list(self._lengths)
        key = keys[number % len(keys)]
        for each in [*reduced, self._reduce(key, value)]:
            assert np.all(each.numpy() == _total(number % 10)), each.dtype


class Training:
    """All that goes through TensorFlow.

    Args:
        shared: `random.Random` that yields the same on all ranks.
        mine: `random.Random` of this rank.
    """

    def __init__(self, shared, mine):
        self._mine = mine
        compressions = (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16)
        self._optimizers = [
            OverlappedTraining(f"optimizer_{index}", shared, compression)
            for index, compression in enumerate(compressions)
        ]
        self._reductions = Reductions(shared)

    def run(self, number):
        """Some steps of each optimizer, in an order of this rank, and reductions between them."""
        for step in range(_STEPS):
            for optimizer in self._mine.sample(self._optimizers, len(self._optimizers)):
                optimizer.step(number + step)
        self._reductions.check(number)
        for optimizer in self._optimizers:
            optimizer.check()

    def trace_anew(self):
        """Lets the next round trace its reductions anew."""
        self._reductions.trace()
