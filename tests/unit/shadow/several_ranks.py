"""Several ranks in one process: nodes that talk through channels between threads."""

import contextlib

import keras

from hvd_p3.shadow.channel import in_process_channels
from hvd_p3.shadow.embedding import initialization
from hvd_p3.shadow.embedding.node import Node
from hvd_p3.shadow.embedding.optimizers import SparseSGD
from hvd_p3.shadow.embedding.table import ShardedTable


@contextlib.contextmanager
def nodes(size):
    """Yields a list of one `Node` for each rank."""
    channels = in_process_channels("test", size)
    made = [Node(rank, size, channels[rank] if size > 1 else None) for rank in range(size)]
    try:
        yield made
    finally:
        for channel in channels:
            channel.close()


def table(node, name="table", rows=10, width=3, optimizer=None, kind="rows", **others):
    """Makes the `ShardedTable` of one node."""
    settings = {"seed": 0, "dtype": "float32", "timeout_s": 10.0, **others}
    initializer = settings.pop("initializer", keras.initializers.RandomUniform(-0.05, 0.05))
    initializer = initialization.check_initializer(initializer)
    return ShardedTable(
        name,
        rows,
        width,
        optimizer or SparseSGD(1.0),
        initializer,
        settings["seed"],
        settings["dtype"],
        kind,
        settings["timeout_s"],
        node,
    )
