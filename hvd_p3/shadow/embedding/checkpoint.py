"""Saves and loads the tables of layers, together on all ranks."""

import uuid

import keras

from hvd_p3 import collectives, process
from hvd_p3.shadow.embedding import checkpoint_files
from hvd_p3.shadow.embedding.layer import ShardedEmbedding


def save_embeddings(layers, folder):
    """Saves the tables of layers, with the state of their optimizers. Call it on all ranks.

    Each rank writes what it owns; see [the format](docs/sharded-embedding.md). Updates that ranks
    have sent before their call are saved. If the program ends meanwhile, the folder keeps the
    checkpoint that it had before.

    Args:
        layers: `keras.Model`, whose `ShardedEmbedding` layers are saved, or a list of such layers,
            built, with different names.
        folder: str or path. On a file system that all hosts share.

    Raises:
        ValueError: On all ranks, if on one there is no layer to be saved, two have the same name,
            or ranks name different layers.
        RuntimeError: On all ranks, if one cannot write, or an owner does not answer.

    Example:

    ```python
    hvd_p3.shadow.save_embeddings(model, "checkpoints/embeddings")
    ```
    """
    tables = _tables_of_all_ranks(layers)
    token = collectives.broadcast_object(uuid.uuid4().hex[:12], name="hvd_p3.embeddings.token")
    rank = process.rank()

    def flush():
        for table in tables:
            table.flush()

    def write_parts():
        for table in tables:
            checkpoint_files.write_part(folder, token, table, rank)

    def write_index():
        if rank == 0:
            checkpoint_files.write_index(folder, token, tables)

    _on_all_ranks(flush, "wait for the updates of embeddings")
    _on_all_ranks(write_parts, f"write the embeddings to {folder}")
    _on_all_ranks(write_index, f"complete the embeddings in {folder}")


def load_embeddings(layers, folder, optimizer_state=True):
    """Loads the tables of layers, saved on any number of ranks. Call it on all ranks.

    Each rank reads the rows that it owns now. If it fails on any rank, no table is changed.

    Args:
        layers: As in `save_embeddings`. Layers are found by their names. Number of ranks,
            `partition` and `dtype` may differ from those of the layers that were saved.
        folder: str or path.
        optimizer_state: bool. Whether the state of the optimizers is loaded too.

    Raises:
        ValueError: On all ranks, if on one there is no layer to be loaded, or ranks name different
            layers.
        RuntimeError: On all ranks, if one cannot read its part: there is no checkpoint, or it has
            no table of that name and shape, or no state that the optimizer needs; or if an owner
            does not answer.

    Example:

    ```python
    hvd_p3.shadow.load_embeddings(model, "checkpoints/embeddings")
    ```
    """
    tables = _tables_of_all_ranks(layers)
    parts = {}

    def read_parts():
        for table in tables:
            table.flush()
        index = checkpoint_files.read_index(folder)
        for table in tables:
            parts[table.name] = checkpoint_files.read_part(
                folder, index, table, process.rank(), optimizer_state
            )

    _on_all_ranks(read_parts, f"read the embeddings in {folder}")
    for table in tables:
        table.shard.replace(parts[table.name])
    collectives.allgather_object(None, name="hvd_p3.embeddings.loaded")


def _tables_of(layers):
    if isinstance(layers, keras.Layer):
        layers = list(layers._flatten_layers())
        layers = [layer for layer in layers if isinstance(layer, ShardedEmbedding)]
    layers = list(dict.fromkeys(layers))
    if not layers:
        raise ValueError("There is no ShardedEmbedding to save or load in what was received.")
    for layer in layers:
        if not isinstance(layer, ShardedEmbedding) or layer.table is None:
            raise ValueError(
                "Embeddings are saved and loaded for ShardedEmbedding layers that are built, for "
                f"example by model.build(input_shape). Received: {layer!r}"
            )
    names = [layer.name for layer in layers]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"Several layers have the name '{twice[0]}', by which a checkpoint tells them apart. "
            "Give each a name of its own."
        )
    return [layer.table for layer in layers]


def _tables_of_all_ranks(layers):
    """The tables of layers, which are the same on all ranks; also waits for all ranks.

    Raises:
        ValueError: On all ranks, if the layers of one cannot be saved or loaded, or ranks differ.
    """
    tables, failure = [], None
    try:
        tables = _tables_of(layers)
    except Exception as error:
        failure = error
    mine = [table.name for table in tables], failure and str(failure)
    by_rank = collectives.allgather_object(mine, name="hvd_p3.embeddings.names")
    if failure is not None:
        raise failure
    for rank, (_, reason) in enumerate(by_rank):
        if reason is not None:
            raise ValueError(f"Rank {rank} cannot save or load embeddings: {reason}")
    first = by_rank[0][0]
    for rank, (names, _) in enumerate(by_rank):
        if names != first:
            raise ValueError(
                f"Ranks save or load different layers: {first} on rank 0, {names} on rank {rank}."
            )
    return tables


def _on_all_ranks(function, what):
    """Calls a function on all ranks, and raises on all if it fails on one."""
    failure = None
    try:
        function()
    except Exception as error:  # whatever it is, the other ranks wait below
        failure = error
    reasons = collectives.allgather_object(
        failure and f"{type(failure).__name__}: {failure}", name="hvd_p3.embeddings.step"
    )
    failed = [f"rank {rank}: {reason}" for rank, reason in enumerate(reasons) if reason]
    if failed:
        raise RuntimeError(f"hvd_p3 could not {what}: {'; '.join(failed)}") from failure
