"""A table that is partitioned over the ranks: lookups and updates of any rows from any rank."""

import numpy as np

from hvd_p3.shadow.embedding import messages, partition
from hvd_p3.shadow.embedding.description import TableDescription
from hvd_p3.shadow.embedding.initialization import TableInitializer
from hvd_p3.shadow.embedding.shard import Shard

_EXAMPLES = 3  # of wrong ids, in errors


class ShardedTable:
    """One rank's view of a table. Any thread may call; threads do not wait for each other.

    Args:
        name: str. The same on all ranks.
        rows: int.
        width: int. Columns.
        optimizer: `SparseOptimizer`.
        initializer: What `initialization.check_initializer` has returned.
        seed: int.
        dtype: str. "float32" or "float64".
        partition_kind: "rows" or "columns".
        timeout_s: float. How long an owner may take to answer, in seconds.
        node: `Node` of this rank.
    """

    def __init__(
        self,
        name,
        rows,
        width,
        optimizer,
        initializer,
        seed,
        dtype,
        partition_kind,
        timeout_s,
        node,
    ):
        self.name = name
        self.rows = rows
        self.width = width
        self.dtype = np.dtype(dtype)
        self.optimizer = optimizer
        self.partition = partition.make(partition_kind, rows, width, node.size)
        self._timeout_s = timeout_s
        self._node = node
        arguments = (
            f"{rows} rows of {width} {dtype} by {partition_kind}, {type(optimizer).__name__}, "
            f"{type(initializer).__name__} with seed {seed}"
        )
        self.description = TableDescription(name, node.next_number(name), arguments)
        make_part = TableInitializer(initializer, name, seed, width, dtype).part
        mine = self.partition
        self.shard = Shard(
            make_part(mine.rows_of(node.rank), mine.columns_of(node.rank)), optimizer
        )
        node.add(self.description, self.shard)

    def check_ids(self, ids):
        """Raises `ValueError` if any of the ids, a NumPy array of int, is no row of the table."""
        if not ids.size or (ids.min() >= 0 and ids.max() < self.rows):
            return
        wrong = np.unique(ids[(ids < 0) | (ids >= self.rows)])
        examples = ", ".join(map(str, wrong[:_EXAMPLES]))
        more = f" and {len(wrong) - _EXAMPLES} more" if len(wrong) > _EXAMPLES else ""
        raise ValueError(
            f"Layer '{self.name}' has rows 0 to {self.rows - 1}. Received ids out of this range: "
            f"{examples}{more}. Give the layer a larger input_dim, or map ids into its range first."
        )

    def look_up(self, ids):
        """Fetches rows from their owners, and waits for them.

        Args:
            ids: NumPy vector of int64. Equal ids travel several times; the layer has none.

        Returns:
            NumPy array [len(ids), width] of the table's dtype.

        Raises:
            ValueError: If an id is out of range.
            RuntimeError: If an owner is gone or does not answer in time, or has built the layer
                with other arguments.
        """
        self.check_ids(ids)
        parts = self.partition.split(ids)
        if self._node.size == 1:
            return self.shard.gather(ids)
        result = np.empty((len(ids), self.width), self.dtype)

        def put(owner, positions, values):
            result[positions, self.partition.columns_of(owner)] = values

        requests = {
            owner: self._request(messages.LOOKUP, rows)
            for owner, _, rows in parts
            if owner != self._node.rank
        }
        with self._node.client.ask(requests, self.description, self._timeout_s) as replies:
            for owner, positions, rows in parts:  # while the others answer
                if owner == self._node.rank:
                    put(owner, positions, self.shard.gather(rows))
            payloads = replies()
        for owner, positions, rows in parts:
            if owner in payloads:
                values = np.frombuffer(payloads[owner], self.dtype).reshape(len(rows), -1)
                put(owner, positions, values)
        return result

    def update(self, ids, gradients):
        """Sends gradients to the owners of their rows, and does not wait until they are applied.

        Args:
            ids: NumPy vector of int64. The gradients of equal ids are summed first.
            gradients: NumPy array [len(ids), width].

        Raises:
            ValueError: If an id is out of range.
            RuntimeError: If an owner is gone.
        """
        different, positions = np.unique(ids, return_inverse=True)
        summed = np.zeros((len(different), self.width), self.dtype)
        np.add.at(summed, positions, gradients)
        self.update_different(different, summed)

    def update_different(self, ids, gradients):
        """As `update`, where each id occurs once."""
        self.check_ids(ids)
        gradients = np.ascontiguousarray(gradients, self.dtype)
        statistic = self.optimizer.row_statistic(gradients)
        rate = self.optimizer.learning_rate
        for owner, positions, rows in self.partition.split(ids):
            part = gradients[positions, self.partition.columns_of(owner)]
            of_rows = None if statistic is None else statistic[positions]
            if owner == self._node.rank:
                self.shard.update(rows, part, of_rows, rate)
                continue
            request = self._request(messages.UPDATE, rows)._replace(
                statistic=of_rows, gradients=part, learning_rate=rate
            )
            self._node.client.tell(owner, request, self.description)

    def flush(self):
        """Waits until all updates that this rank has sent so far are applied."""
        others = [owner for owner in range(self._node.size) if owner != self._node.rank]
        if not others:
            return
        requests = {owner: self._request(messages.FLUSH) for owner in others}
        with self._node.client.ask(requests, self.description, self._timeout_s) as replies:
            replies()

    def release(self):
        """Gives the memory of this rank's part back. The table cannot be used any more."""
        self._node.release(self.description)
        self.shard = None

    def _request(self, kind, rows=None):
        request = messages.Request(
            kind, table=self.description.key, arguments=self.description.arguments_key
        )
        return request if rows is None else request._replace(rows=rows)
