"""Starts in a thread, forks, and goes on; for test_failures.py."""

import multiprocessing
import os
import sys
import threading

import tensorflow as tf

import hvd_p3 as hvd


def _in_child():
    try:
        hvd.rank()
    except ValueError as error:
        print(f"child: {error}", flush=True)
    try:
        hvd.init()
    except RuntimeError as error:
        print(f"child: {error}", flush=True)
    sys.exit(0)


def _square(number):
    return number * number


def _sum():
    return float(hvd.ops.all_reduce(tf.constant(1.0), name="one", op=hvd.Sum))


def main():
    thread = threading.Thread(target=hvd.init)
    thread.start()
    thread.join()
    assert _sum() == hvd.size()
    child = os.fork()
    if child == 0:
        _in_child()
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_square, range(4)) == [0, 1, 4, 9]
    assert _sum() == hvd.size()
    print(f"rank {hvd.rank()} has finished", flush=True)


if __name__ == "__main__":
    main()
