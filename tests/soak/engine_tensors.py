"""Tensors that the soak test gives to the engine itself."""

import time

import numpy as np

import hvd_p3 as hvd
from hvd_p3 import _engine

_GROUPS = 20
_TENSORS_OF_A_GROUP = 20
_LARGEST = 16 * 1024  # elements
PATIENCE_S = 60


def random_length(random_numbers):
    """A number of elements; most are small."""
    return int(_LARGEST ** random_numbers.random())


class _Tensor:
    """A declared tensor, with the sum over ranks of what is submitted for it.

    Rank r submits `base + r + round`: small integers, whose sums are exact.
    """

    def __init__(self, handle, base):
        self.handle = handle
        self.base = base
        self.output = np.empty_like(base)

    def submit(self, number):
        self.input = self.base + np.float32(hvd.rank() + number % 100)
        self.output.fill(-1)
        self.ticket = _engine.submit(self.handle, self.input, self.output)

    def check(self, number):
        self.ticket.wait(PATIENCE_S)
        size = hvd.size()
        total = size * (self.base + np.float32(number % 100)) + np.float32(size * (size - 1) / 2)
        np.testing.assert_array_equal(self.output, total)


class EngineTensors:
    """Groups of tensors, of which each round takes some: whole ones, since they share slices.

    Args:
        shared: `random.Random` that yields the same on all ranks.
        mine: `random.Random` of this rank.
    """

    def __init__(self, shared, mine):
        self._shared = shared
        self._mine = mine
        self._declared = 0
        self._groups = [self._declare() for _ in range(_GROUPS)]
        self._chosen = []

    def _declare(self):
        random_numbers, group = self._shared, self._declared
        self._declared += 1
        lengths = [random_length(random_numbers) for _ in range(_TENSORS_OF_A_GROUP)]
        handles = _engine.declare_group(
            f"soak.{group}",
            [
                (f"{group}/{i}", "float32", [length], random_numbers.randrange(10), "sum", 1.0, 1.0)
                for i, length in enumerate(lengths)
            ],
        )
        return [
            _Tensor(handle, (np.arange(length) % 7).astype("float32"))
            for handle, length in zip(handles, lengths, strict=True)
        ]

    def declare_another_group(self):
        """Replaces a group by a new one, which ranks agree on while they reduce others."""
        self._groups[self._shared.randrange(_GROUPS)] = self._declare()

    def submit(self, number):
        """Submits some groups, on each rank in another order."""
        chosen = self._shared.sample(self._groups, self._shared.randint(1, 8))
        self._chosen = [tensor for group in chosen for tensor in group]
        self._mine.shuffle(self._chosen)
        for tensor in self._chosen:
            tensor.submit(number)
            if self._mine.random() < 0.01:
                time.sleep(0.001 * self._mine.random())

    def check(self, number):
        """Waits for what was submitted, and compares every element."""
        for tensor in self._chosen:
            tensor.check(number)
