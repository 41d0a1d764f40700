"""Checkpoints of tables: saved by some ranks, read by others."""

import itertools
import json

import keras
import numpy as np
import pytest
from several_ranks import nodes, table

from hvd_p3.shadow.embedding import checkpoint_files
from hvd_p3.shadow.embedding.optimizers import RowwiseAdagrad, SparseSGD

_ROWS, _WIDTH = 11, 5


def _trained(ranks, kind, optimizer, dtype="float32"):
    tables = [
        table(node, rows=_ROWS, width=_WIDTH, kind=kind, optimizer=optimizer, dtype=dtype)
        for node in ranks
    ]
    generator = np.random.default_rng(5)
    for _ in range(4):
        ids = generator.permutation(_ROWS)[:6]
        tables[0].update(ids, generator.normal(size=(6, _WIDTH)))
    tables[0].flush()
    return tables


def _save(folder, tables, token="first"):
    for rank, each in enumerate(tables):
        checkpoint_files.write_part(folder, token, each, rank)
    checkpoint_files.write_index(folder, token, tables)


def _load(folder, tables, **options):
    index = checkpoint_files.read_index(folder)
    for rank, each in enumerate(tables):
        part = checkpoint_files.read_part(folder, index, each, rank, **options)
        each.shard.replace(part)


def _everything(one):
    return one.look_up(np.arange(one.rows))


_WAYS = list(itertools.product([1, 2, 3, 7], ["rows", "columns"]))


@pytest.mark.parametrize(("saving", "kind"), _WAYS)
def test_any_number_of_ranks_reads_what_others_have_saved(tmp_path, saving, kind):
    with nodes(saving) as ranks:
        tables = _trained(ranks, kind, RowwiseAdagrad(0.1))
        _save(tmp_path, tables)
        expected = _everything(tables[0])
        ids, gradients = np.arange(_ROWS), np.ones((_ROWS, _WIDTH))
        tables[0].update(ids, gradients)
        expected_next = _everything(tables[0])
    for loading, other_kind in _WAYS:
        with nodes(loading) as ranks:
            optimizer = RowwiseAdagrad(0.1)
            tables = [
                table(node, rows=_ROWS, width=_WIDTH, kind=other_kind, optimizer=optimizer, seed=9)
                for node in ranks
            ]
            assert not np.array_equal(_everything(tables[0]), expected)
            _load(tmp_path, tables)
            assert np.array_equal(_everything(tables[-1]), expected)
            # The accumulators, by what they do to the next update.
            tables[0].update(ids, gradients)
            assert np.array_equal(_everything(tables[0]), expected_next)


def test_new_checkpoint_replaces_the_old_one(tmp_path):
    with nodes(2) as ranks:
        tables = _trained(ranks, "rows", RowwiseAdagrad(0.1))
        _save(tmp_path, tables, "first")
        before = _everything(tables[0])
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == [
            "index.json",
            "table.first.0-of-2.accumulator.npy",
            "table.first.0-of-2.values.npy",
            "table.first.1-of-2.accumulator.npy",
            "table.first.1-of-2.values.npy",
        ]
        tables[0].update(np.arange(_ROWS), np.ones((_ROWS, _WIDTH)))
        tables[0].flush()
        checkpoint_files.write_part(tmp_path, "second", tables[0], 0)
        # A program that ends here has the first checkpoint.
        with nodes(1) as (alone,):
            read = table(alone, rows=_ROWS, width=_WIDTH, optimizer=RowwiseAdagrad(0.1))
            _load(tmp_path, [read])
            assert np.array_equal(_everything(read), before)
        with pytest.raises(FileNotFoundError, match=r"second.1-of-2.*all hosts share"):
            checkpoint_files.write_index(tmp_path, "second", tables)
        checkpoint_files.write_part(tmp_path, "second", tables[1], 1)
        checkpoint_files.write_index(tmp_path, "second", tables)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            name.replace("first", "second") for name in names
        ]
        after = _everything(tables[0])
    with nodes(1) as (alone,):
        read = table(alone, rows=_ROWS, width=_WIDTH, optimizer=RowwiseAdagrad(0.1))
        _load(tmp_path, [read])
        assert np.array_equal(_everything(read), after)
        assert not np.array_equal(before, after)


def test_names_that_make_no_file_names_are_told_apart(tmp_path):
    names = ["user id", "user_id", "user/id"]
    with nodes(1) as (alone,):
        tables = [
            table(alone, name, rows=_ROWS, width=_WIDTH, initializer=keras.initializers.Constant(i))
            for i, name in enumerate(names)
        ]
        for each in tables:
            checkpoint_files.write_part(tmp_path, "token", each, 0)
        checkpoint_files.write_index(tmp_path, "token", tables)
        read = [table(alone, name, rows=_ROWS, width=_WIDTH) for name in names]
        for number, each in enumerate(read):
            _load(tmp_path, [each])
            assert np.all(_everything(each) == number)
    assert (tmp_path / "user_id.token.0-of-1.values.npy").exists(), "plain names stay as they are"


def test_other_dtype_and_optimizer(tmp_path):
    with nodes(2) as ranks:
        tables = _trained(ranks, "rows", SparseSGD(0.1), dtype="float64")
        _save(tmp_path, tables)
        expected = _everything(tables[0]).astype("float32")
    with nodes(1) as (alone,):
        read = table(alone, rows=_ROWS, width=_WIDTH, optimizer=RowwiseAdagrad(0.1))
        with pytest.raises(ValueError, match=r"with SparseSGD and has no accumulator for the Row"):
            _load(tmp_path, [read])
        _load(tmp_path, [read], optimizer_state=False)
        assert np.array_equal(_everything(read), expected)
        assert not read.shard.state["accumulator"].any()


def test_what_does_not_fit_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="There is no checkpoint of embeddings in"):
        checkpoint_files.read_index(tmp_path)
    with nodes(2) as ranks:
        _save(tmp_path, _trained(ranks, "rows", SparseSGD(0.1)))
    with nodes(1) as (alone,):
        with pytest.raises(ValueError, match=r"no table for layer 'users'. It has: table\. "):
            _load(tmp_path, [table(alone, name="users", rows=_ROWS, width=_WIDTH)])
        with pytest.raises(ValueError, match=r"12 rows of 5 columns, .* has 11 rows of 5"):
            _load(tmp_path, [table(alone, rows=12, width=_WIDTH)])
        path = tmp_path / "table.first.1-of-2.values.npy"
        for length in (-10, 0):
            path.write_bytes(path.read_bytes()[:length])
            with pytest.raises(ValueError, match=r"first.1-of-2.values.npy, a part of a check"):
                _load(tmp_path, [table(alone, rows=_ROWS, width=_WIDTH)])
    index = tmp_path / "index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "version": 2}))
    with pytest.raises(ValueError, match=r"version 2. This version of hvd_p3 reads"):
        checkpoint_files.read_index(tmp_path)
    index.write_text("{")
    with pytest.raises(ValueError, match="is no index of embeddings"):
        checkpoint_files.read_index(tmp_path)
