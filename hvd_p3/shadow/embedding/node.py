"""This process among the owners of tables: its service and its client, made once."""

import collections
import sys
import threading
import warnings

from hvd_p3 import process
from hvd_p3.shadow.channel import open_channel
from hvd_p3.shadow.embedding.client import Client
from hvd_p3.shadow.embedding.service import Service

# How long the first table of a process waits for those of other ranks, which may still load data.
_START_S = 600.0
# A rank that ends waits for others that may still need its rows, unless they give no sign of life
# for this long.
_PATIENCE_S = 60.0


class Node:
    """One rank's way to the others, and the tables it has made.

    Args:
        rank: int.
        size: int. Number of ranks.
        channel: As in `Service`; `None` if there is one rank only, which needs no communication.
    """

    def __init__(self, rank, size, channel=None):
        self.rank = rank
        self.size = size
        self.service = self.client = None
        self._lock = threading.Lock()
        self._tables_of_name = collections.Counter()
        if size > 1:
            self.service = Service(rank, size, channel)
            self.client = Client(channel, self.service)
            self.service.start()

    def next_number(self, name):
        """Returns how many tables of this name there were before, and counts one more."""
        with self._lock:
            self._tables_of_name[name] += 1
            return self._tables_of_name[name] - 1

    def add(self, description, shard):
        """Lets other ranks use this rank's part of a table."""
        if self.service is not None:
            self.service.add(description, shard)

    def release(self, description):
        """Ends that."""
        if self.service is not None:
            self.service.release(description)


_lock = threading.Lock()
_node = None


def current():
    """Returns the `Node` of this process. The first call is collective over all ranks.

    Raises:
        ValueError: If hvd_p3 is not initialised.
        RuntimeError: If there are several ranks without MPI.
        TimeoutError: If another rank does not call it.
    """
    global _node
    size = process.size()
    with _lock:
        if _node is None or _node.size != size:
            channel = open_channel("embeddings", _START_S) if size > 1 else None
            _node = Node(process.rank(), size, channel)
            if size > 1:
                process.before_shutdown(_close)
        return _node


def _close():
    """Ends the service of this process, which ends its program or calls `hvd_p3.shutdown`."""
    global _node
    with _lock:
        ending, _node = _node, None
    if getattr(sys, "last_value", None) is not None:  # the program ends with an exception
        ending.service.abort()
        return
    silent = ending.service.close(_PATIENCE_S)
    if silent:
        warnings.warn(
            f"rank {ending.rank} ends, though ranks {', '.join(map(str, silent))} may still need "
            f"the rows of embeddings that it owns: they have given no sign of life for "
            f"{_PATIENCE_S:g} s.",
            stacklevel=2,
        )
