"""Reduces a million slices over all ranks and checks results, memory and file descriptors.

    make soak
    horovodrun -np 4 --mpi python tests/soak/soak.py --slices 1000000 --seed 1

Each round submits a random part of many tensors of random sizes, on each rank in an order of its
own, and compares every element of every result. Memory and open files must not grow.
"""

import argparse
import random
import time

import numpy as np
import psutil
import rich.console
import rich.progress

import hvd_p3 as hvd
from hvd_p3 import _engine

_GROUPS = 20
_TENSORS_OF_A_GROUP = 20
_LARGEST = 16 * 1024  # elements
_SLICE_BYTES = 4096
_CREDIT_BYTES = 64 * 1024
_PATIENCE_S = 60
# The first rounds fill the allocator's and MPI's pools.
_WARM_UP_SHARE = 0.2
_MOST_GROWTH_BYTES = 16 * 1024 * 1024


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
        self.ticket.wait(_PATIENCE_S)
        size = hvd.size()
        total = size * (self.base + np.float32(number % 100)) + np.float32(size * (size - 1) / 2)
        np.testing.assert_array_equal(self.output, total)


def _declare(random_numbers):
    """Declares all tensors; the same on all ranks."""
    tensors = []
    for group in range(_GROUPS):
        lengths = [
            int(_LARGEST ** random_numbers.random()) for _ in range(_TENSORS_OF_A_GROUP)
        ]  # most are small
        handles = _engine.declare_group(
            f"soak.{group}",
            [
                (f"{group}/{i}", "float32", [length], random_numbers.randrange(10), "sum", 1.0, 1.0)
                for i, length in enumerate(lengths)
            ],
        )
        tensors.append(
            [
                _Tensor(handle, (np.arange(length) % 7).astype("float32"))
                for handle, length in zip(handles, lengths, strict=True)
            ]
        )
    return tensors


def _round(number, groups, shared, mine):
    """One round: whole groups, since small tensors of a group share slices."""
    chosen = shared.sample(groups, shared.randint(1, 8))
    tensors = [tensor for group in chosen for tensor in group]
    mine.shuffle(tensors)
    for tensor in tensors:
        tensor.submit(number)
        if mine.random() < 0.01:
            time.sleep(0.001 * mine.random())
    for tensor in tensors:
        tensor.check(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=1_000_000, help="how many to reduce")
    parser.add_argument("--seed", type=int, default=0, help="of sizes and orders")
    arguments = parser.parse_args()
    hvd.init(slice_bytes=_SLICE_BYTES, credit_bytes=_CREDIT_BYTES)
    shared = random.Random(arguments.seed)
    mine = random.Random(f"{arguments.seed} {hvd.rank()}")
    groups = _declare(shared)
    process = psutil.Process()
    before = None
    started = time.monotonic()
    console = rich.console.Console(quiet=hvd.rank() != 0)
    with rich.progress.Progress(console=console, refresh_per_second=0.2) as bar:
        task = bar.add_task("slices", total=arguments.slices)
        number = 0
        while (slices := hvd.statistics()["slices"]) < arguments.slices:
            if before is None and slices >= _WARM_UP_SHARE * arguments.slices:
                before = process.memory_info().rss, process.num_fds()
            _round(number, groups, shared, mine)
            number += 1
            bar.update(task, completed=slices)
    growth = process.memory_info().rss - before[0]
    print(
        f"rank {hvd.rank()}: {slices} slices in {number} rounds and "
        f"{time.monotonic() - started:.0f} s; memory grew by {growth / 1e6:.1f} MB, "
        f"files from {before[1]} to {process.num_fds()}; "
        f"{hvd.statistics()['held_bytes']} bytes held",
        flush=True,
    )
    assert growth <= _MOST_GROWTH_BYTES, "memory grows"
    assert process.num_fds() <= before[1], "open files grow"
    assert hvd.statistics()["held_bytes"] == 0


if __name__ == "__main__":
    main()
