"""Reduces a million slices over all ranks and checks results, memory and file descriptors.

    make soak
    horovodrun -np 4 --mpi python tests/soak/soak.py --slices 1000000 --seed 1

Each round submits a random part of many tensors of random sizes, on each rank in an order of its
own, and compares every element of every result. In some rounds optimizers train in overlapped mode
meanwhile, tensors of all dtypes are reduced by TensorFlow, and new tensors are declared. Memory and
open files must not grow.
"""

import argparse
import random
import time

import psutil
import rich.console
import rich.progress
from engine_tensors import EngineTensors
from training import Training

import hvd_p3 as hvd

_SLICE_BYTES = 4096
_CREDIT_BYTES = 64 * 1024
# The first rounds fill the pools of the allocator, MPI and TensorFlow.
_WARM_UP_SHARE = 0.2
_MOST_GROWTH_BYTES = 16 * 1024 * 1024
_ROUNDS_FOR_A_TRAINING = 40
_ROUNDS_FOR_A_TRACE = 400


def _usage():
    """This process's memory in bytes, and its number of open files."""
    process = psutil.Process()
    return process.memory_info().rss, process.num_fds()


def _round(number, tensors, training):
    if number % _ROUNDS_FOR_A_TRACE == 0:
        training.trace_anew()
    trains = number % _ROUNDS_FOR_A_TRAINING == 0
    if trains:
        tensors.declare_another_group()
    tensors.submit(number)
    if trains:
        training.run(number)
    tensors.check(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--slices", type=int, default=1_000_000, help="how many to reduce, at least"
    )
    parser.add_argument("--seed", type=int, default=0, help="of sizes and orders")
    arguments = parser.parse_args()
    hvd.init(slice_bytes=_SLICE_BYTES, credit_bytes=_CREDIT_BYTES)
    shared = random.Random(arguments.seed)
    mine = random.Random(f"{arguments.seed} {hvd.rank()}")
    tensors = EngineTensors(shared, mine)
    training = Training(shared, mine)
    before = None
    started = time.monotonic()
    console = rich.console.Console(quiet=hvd.rank() != 0)
    with rich.progress.Progress(console=console, refresh_per_second=0.2) as bar:
        task = bar.add_task("slices", total=arguments.slices)
        number = 0
        # At least one round after the warm-up, however few slices are asked for.
        while before is None or hvd.statistics()["slices"] < arguments.slices:
            if number and hvd.statistics()["slices"] >= _WARM_UP_SHARE * arguments.slices:
                before = before or _usage()
            _round(number, tensors, training)
            number += 1
            bar.update(task, completed=hvd.statistics()["slices"])
    memory, files = _usage()
    growth = memory - before[0]
    print(
        f"rank {hvd.rank()}: {hvd.statistics()['slices']} slices in {number} rounds and "
        f"{time.monotonic() - started:.0f} s; memory grew by {growth / 1e6:.1f} MB, "
        f"files from {before[1]} to {files}; "
        f"{hvd.statistics()['held_bytes']} bytes held",
        flush=True,
    )
    assert growth <= _MOST_GROWTH_BYTES, "memory grows"
    assert files <= before[1], "open files grow"
    assert hvd.statistics()["held_bytes"] == 0


if __name__ == "__main__":
    main()
