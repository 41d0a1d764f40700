"""Sharded embeddings on 4 ranks: partitions, and checkpoints of other numbers of ranks."""

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from embedding_tables import everything, settle, step_of, wait_for_all
from expect import raises, same_bits

import hvd_p3 as hvd
from hvd_p3.shadow.embedding import checkpoint_files, initialization
from hvd_p3.shadow.embedding.node import Node
from hvd_p3.shadow.embedding.table import ShardedTable

_ROWS, _WIDTH = 26, 6


def _layer(name, **settings):
    layer = hvd.shadow.ShardedEmbedding(
        _ROWS, _WIDTH, optimizer=hvd.shadow.RowwiseAdagrad(0.5, 0.1), name=name, **settings
    )
    layer.build()
    return layer


def _on_one_rank(name):
    """The same table in this process alone."""
    return ShardedTable(
        name,
        _ROWS,
        _WIDTH,
        hvd.shadow.RowwiseAdagrad(0.5, 0.1),
        initialization.check_initializer("uniform"),
        0,
        "float32",
        "rows",
        60.0,
        Node(0, 1),
    )


def check_all_partitions_train_the_table_of_one_rank():
    for partition in ("rows", "columns"):
        layer = _layer(partition, partition=partition)
        alone = _on_one_rank(partition)
        same_bits(everything(layer), alone.look_up(np.arange(_ROWS)), "initial table")
        wait_for_all(f"{partition}.read")
        step = step_of(layer)
        generator = np.random.default_rng(0)
        for turn in range(8):
            ids = generator.integers(0, _ROWS, size=10)
            different, counts = np.unique(ids, return_counts=True)
            alone.update(different, np.repeat(counts[:, np.newaxis], _WIDTH, axis=1))
            if turn % 4 == hvd.rank():
                step(tf.constant(ids))
            settle(layer, f"{partition}.{turn}")
        np.testing.assert_allclose(
            everything(layer), alone.look_up(np.arange(_ROWS)), rtol=1e-6, atol=1e-7
        )


def check_checkpoints_of_other_numbers_of_ranks():
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp(), name="folder"))
    layers = [_layer("kept", partition="rows"), _layer("kept.columns", partition="columns")]
    for layer in layers:
        step_of(layer)(tf.constant([hvd.rank(), 7, 25], tf.int64))
    hvd.shadow.save_embeddings(layers, folder / "of four")
    expected = [everything(layer) for layer in layers]
    # Four ranks to one,
    for layer, values in zip(layers, expected, strict=True):
        alone = _on_one_rank(layer.name)
        index = checkpoint_files.read_index(folder / "of four")
        alone.shard.replace(checkpoint_files.read_part(folder / "of four", index, alone, 0))
        same_bits(alone.look_up(np.arange(_ROWS)), values, "table of one rank")
    # and one, which trained on, to four.
    wait_for_all("kept.read")
    alone.update(np.array([3, 25]), np.ones((2, _WIDTH)))
    if hvd.rank() == 0:
        checkpoint_files.write_part(folder / "of one", "token", alone, 0)
        checkpoint_files.write_index(folder / "of one", "token", [alone])
    wait_for_all("kept.written")
    hvd.shadow.load_embeddings(layers[1:], folder / "of one")
    same_bits(everything(layers[1]), alone.look_up(np.arange(_ROWS)), "table of four ranks")
    with raises(
        RuntimeError, "could not read the embeddings in", "rank 0: ValueError", "rank 3", "'kept'"
    ):
        hvd.shadow.load_embeddings(layers[:1], folder / "of one")
    same_bits(everything(layers[0]), expected[0], "table that was not loaded")
    # A file that another rank cannot write is an error on all ranks.
    if hvd.rank() == 0:
        (folder / "a file").write_text("")
    wait_for_all("kept.file")
    with raises(RuntimeError, "could not write the embeddings to", "rank 0", "rank 3"):
        hvd.shadow.save_embeddings(layers, folder / "a file")


def check_a_rank_that_cannot_save_or_load_keeps_no_other_waiting():
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp(), name="waiting.folder"))
    layer = _layer("waiting")
    hvd.shadow.save_embeddings([layer], folder)
    expected = everything(layer)
    is_last = hvd.rank() == hvd.size() - 1
    # Other layers than the others, or none.
    with raises(ValueError, "no ShardedEmbedding" if is_last else "Rank 3 cannot save or load"):
        hvd.shadow.save_embeddings([] if is_last else [layer], folder)
    # An owner that does not answer, and an error of any type.
    flush = layer.table.flush

    def fail():
        if is_last:
            raise ArithmeticError("no flush today")
        flush()

    layer.table.flush = fail
    with raises(RuntimeError, "could not wait for the updates", "rank 3: ArithmeticError: no flu"):
        hvd.shadow.save_embeddings([layer], folder)
    with raises(RuntimeError, "could not read the embeddings", "rank 3: ArithmeticError: no flush"):
        hvd.shadow.load_embeddings([layer], folder)
    layer.table.flush = flush
    # A file that is empty.
    wait_for_all("waiting.empty")
    if hvd.rank() == 0:
        for path in folder.glob("waiting.*.0-of-4.values.npy"):
            path.write_bytes(b"")
    wait_for_all("waiting.emptied")
    with raises(RuntimeError, "could not read the embeddings", "0-of-4.values.npy, a part of"):
        hvd.shadow.load_embeddings([layer], folder)
    same_bits(everything(layer), expected, "table that was not loaded")
