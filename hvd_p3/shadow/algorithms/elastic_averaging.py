"""Elastic averaging against central weights."""

import contextlib
import itertools
import time

import numpy as np

from hvd_p3.shadow.algorithms.algorithm import Algorithm
from hvd_p3.shadow.algorithms.synchronization_server import (
    REPLY_TAG,
    REQUEST_TAG,
    SynchronizationServer,
    numbered,
    split_number,
)


class ElasticAveraging(Algorithm):
    """Draws each rank's weights and central weights towards each other.

    S-EASGD in the background, FR-EASGD in the foreground. The central weights `w_0` start as the
    first weights and are cut into shards of equal length, each kept by a server: a thread on one of
    the ranks. A rank synchronises with all servers at its own pace, whatever other ranks do. For
    each shard

        w_0 = (1 - alpha) * w_0 + alpha * w_i               on the server
        w_i = (1 - alpha) * w_i + alpha * w_0               on rank i, with the new w_0

    A server takes one request after the other, so no update of `w_0` is lost. At the end, after one
    more synchronisation of each rank, all ranks are left with `w_0`.

    A server that does not answer in time is not asked again before it does. If its rank is gone,
    the others say so and go on with the remaining shards; at the end, they are left with the mean
    of their weights in that place.

    Method: ShadowSync (Zheng et al., 2020), the algorithm S-EASGD; Deep Learning with Elastic
    Averaging SGD (Zhang et al., 2015).

    Args:
        alpha: float in (0, 1], the elastic parameter.
        servers: int, on how many ranks (the first ones) there is a server, or a list of their
            numbers. `None` is all ranks.

    Raises:
        ValueError: If `alpha` is out of range; at the start of training, if `servers` is.

    Example:

    ```python
    algorithm = hvd_p3.shadow.ElasticAveraging(alpha=0.3, servers=2)
    model.fit(data, callbacks=[hvd_p3.shadow.ShadowSync(algorithm)])
    ```
    """

    collective = False

    def __init__(self, alpha=0.5, servers=None):
        super().__init__(alpha)
        self.servers = servers
        self._shards = {}  # rank of the server -> slice of the vector
        self._silent = set()  # servers that have not answered the last request
        self._server = None
        self._number = 0

    def start(self, weights, group):
        ranks = self._server_ranks(group.ranks)
        bounds = np.linspace(0, weights.size, len(ranks) + 1).astype(int).tolist()
        self._shards = {
            rank: slice(*ends) for rank, ends in zip(ranks, itertools.pairwise(bounds), strict=True)
        }
        self._silent = set()
        if group.rank in self._shards:
            self._server = SynchronizationServer(
                weights[self._shards[group.rank]].copy(), self.alpha, group
            )

    def _server_ranks(self, ranks):
        servers = self.servers
        if servers is None:
            return list(ranks)
        if isinstance(servers, int) and 1 <= servers <= len(ranks):
            return list(ranks)[:servers]
        if (
            isinstance(servers, (list, tuple))
            and servers
            and len(set(servers)) == len(servers)
            and all(each in ranks for each in servers)
        ):
            return list(servers)
        raise ValueError(
            f"ElasticAveraging needs servers from 1 to {len(ranks)}, or a list of different ranks "
            f"of the job. Received: servers={servers!r}"
        )

    def synchronize(self, weights, group):
        self._number += 1
        target = weights.copy()  # a shard without its server stays as it is
        self._look_for_late_replies(group)
        asked = [rank for rank in self._shards if rank in group.ranks and rank not in self._silent]
        for rank in asked:
            group.send(rank, REQUEST_TAG, numbered(self._number, weights[self._shards[rank]]))
        end = time.monotonic() + group.timeout_s
        for rank in asked:
            reply = self._reply(rank, group, weights.dtype, end)
            if reply is not None:
                target[self._shards[rank]] = reply
        return target

    def _look_for_late_replies(self, group):
        """A server that has answered the last request after all is asked again."""
        for rank in list(self._silent):
            with contextlib.suppress(TimeoutError):
                group.receive(rank, REPLY_TAG, 0.0)
                self._silent.discard(rank)

    def _reply(self, rank, group, dtype, end):
        """The central weights of a shard, or None if its server does not answer in time."""
        while True:
            try:
                left_s = max(0.0, end - time.monotonic())
                _, _, message = group.receive(rank, REPLY_TAG, left_s)
            except TimeoutError:
                self._silent.add(rank)
                group.warn(
                    f"the synchronisation server on rank {rank} did not answer for "
                    f"{group.timeout_s:g} s; until it does, this rank goes on without its share of "
                    "the weights"
                )
                return None
            number, values = split_number(message, dtype)
            if number == self._number:
                return values

    def finish(self, weights, group):
        # Each shard from its server, or the mean where that is gone: one sum for all of it.
        mine = np.zeros_like(weights)
        for rank, shard in self._shards.items():
            if rank not in group.ranks:
                mine[shard] = weights[shard] / group.size
            elif rank == group.rank:
                mine[shard] = self._server.weights()
        return group.sum(mine)

    def stop(self):
        if self._server is not None:
            self._server.stop()
            self._server = None
