"""Looks up rows for a while; for test_embedding.py.

program_embedding.py early    # rank 1 ends its program long before rank 0
program_embedding.py raise    # rank 1 ends with an exception while rank 0 goes on
"""

import sys
import time

import numpy as np

import hvd_p3 as hvd


def main(what):
    hvd.init()
    layer = hvd.shadow.ShardedEmbedding(
        10, 2, optimizer=hvd.shadow.SparseSGD(1.0), embeddings_initializer="zeros", name="users"
    )
    layer.build()
    ids = np.arange(10)
    steps = 1 if hvd.rank() == 1 else 200
    for _ in range(steps):
        layer.table.look_up(ids)
        layer.table.update(ids, np.ones((10, 2)))
        if hvd.rank() == 0:
            time.sleep(0.02)
    if hvd.rank() == 1:
        if what == "raise":
            raise ArithmeticError("this rank fails on purpose")
        print("rank 1 is at its end", flush=True)
        return
    expected = -201.0 if what == "early" else None
    assert np.all(layer.table.look_up(ids) == expected)
    print("rank 0 has finished", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
