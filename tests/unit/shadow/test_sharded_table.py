"""Lookups and updates between several ranks in one process."""

import threading
import time

import keras
import numpy as np
import pytest
from several_ranks import nodes, table

from hvd_p3.shadow.embedding import messages
from hvd_p3.shadow.embedding.optimizers import RowwiseAdagrad, SparseSGD

_ROWS = 10


def _everything(one):
    return one.look_up(np.arange(one.rows))


@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_rank_sees_the_same_table(size, kind):
    with nodes(1) as (alone,):
        expected = _everything(table(alone))
    with nodes(size) as ranks:
        tables = [table(node, kind=kind) for node in ranks]
        for each in tables:
            assert np.array_equal(_everything(each), expected)
        some = np.array([7, 0, 3])
        assert np.array_equal(tables[-1].look_up(some), expected[some])
        assert tables[0].look_up(np.empty(0, np.int64)).shape == (0, 3)


@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize("optimizer", [SparseSGD, RowwiseAdagrad])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_updates_of_ranks_that_take_turns_are_those_of_one_rank(optimizer, kind, dtype):
    generator = np.random.default_rng(0)
    updates = []
    for _ in range(6):
        ids = generator.permutation(_ROWS)[: generator.integers(0, _ROWS)]
        updates.append((ids, generator.normal(size=(len(ids), 3)).astype(dtype)))
    with nodes(1) as (alone,):
        expected = table(alone, optimizer=optimizer(0.5), dtype=dtype)
        for update in updates:
            expected.update(*update)
        expected = _everything(expected)
    with nodes(3) as ranks:
        tables = [table(node, optimizer=optimizer(0.5), kind=kind, dtype=dtype) for node in ranks]
        for turn, update in enumerate(updates):
            mine = tables[turn % 3]
            mine.look_up(update[0])
            mine.update(*update)
            mine.flush()
        for each in tables:
            assert _everything(each).dtype == dtype
            assert np.array_equal(_everything(each), expected)


def test_lookups_see_earlier_updates_of_their_rank():
    with nodes(2) as ranks:
        tables = [table(node, initializer="zeros") for node in ranks]
        ids = np.arange(_ROWS)
        for step in range(20):
            assert np.all(tables[0].look_up(ids) == -step)
            tables[0].update(ids, np.ones((_ROWS, 3)))


def test_gradients_of_equal_ids_are_summed():
    with nodes(2) as ranks:
        tables = [table(node, initializer="zeros", optimizer=RowwiseAdagrad(1.0)) for node in ranks]
        tables[0].update(np.array([5, 1, 5, 5]), np.repeat([[1.0], [2.0], [3.0], [4.0]], 3, axis=1))
        tables[0].flush()
        rows, accumulator = tables[1].shard.values, tables[1].shard.state["accumulator"]
        np.testing.assert_allclose(accumulator, [4.0, 0.0, 64.0, 0.0, 0.0])
        np.testing.assert_allclose(rows[[0, 2]], -1.0, rtol=1e-6)


def test_each_update_has_the_learning_rate_of_its_rank_at_its_time():
    with nodes(2) as ranks:
        tables = [
            table(node, initializer="zeros", optimizer=SparseSGD(rate))
            for node, rate in zip(ranks, (1.0, 8.0), strict=True)
        ]
        ids = np.array([1])  # owned by rank 1
        tables[0].update(ids, np.ones((1, 3)))
        tables[0].optimizer.learning_rate = 2.0
        tables[0].update(ids, np.ones((1, 3)))
        assert np.all(tables[0].look_up(ids) == -3.0)


def test_no_update_is_lost_between_many_threads():
    with nodes(3) as ranks:
        tables = [table(node, initializer="zeros") for node in ranks]

        def train(mine, seed):
            generator = np.random.default_rng(seed)
            for _ in range(50):
                ids = generator.permutation(_ROWS)[:4]
                mine.look_up(ids)
                mine.update(ids, np.ones((4, 3)))

        threads = [
            threading.Thread(target=train, args=(mine, seed))
            for mine in tables
            for seed in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in tables:
            each.flush()
        total = _everything(tables[0]).sum()
        assert total == -len(threads) * 50 * 4 * 3


def test_updates_are_whole_or_not_there():
    with nodes(2) as ranks:
        tables = [table(node, initializer="zeros", rows=2, width=64) for node in ranks]
        ids, ended = np.array([0]), threading.Event()

        def train():
            for _ in range(300):
                tables[1].update(ids, np.ones((1, 64)))
            ended.set()

        thread = threading.Thread(target=train)
        thread.start()
        while not ended.is_set():
            assert len(np.unique(tables[0].look_up(ids))) == 1
        thread.join()


def test_ids_out_of_range():
    with nodes(2) as ranks:
        tables = [table(node, name="users") for node in ranks]
        message = (
            r"Layer 'users' has rows 0 to 9. Received ids out of this range: -1, 10, 12 and 1 more"
        )
        wrong = np.array([3, 13, -1, 12, 10])
        with pytest.raises(ValueError, match=message):
            tables[0].look_up(wrong)
        with pytest.raises(ValueError, match=r"out of this range: 10. "):
            tables[0].update(np.array([10]), np.ones((1, 3)))
        assert tables[0].look_up(np.array([9])).shape == (1, 3)


def test_owner_that_builds_the_table_later_is_waited_for():
    with nodes(2) as ranks:
        first = table(ranks[0])
        found = []
        thread = threading.Thread(target=lambda: found.append(_everything(first)))
        thread.start()
        time.sleep(0.2)
        assert not found
        second = table(ranks[1])
        thread.join()
        assert np.array_equal(found[0], _everything(second))


def test_tables_of_one_name_are_told_apart():
    with nodes(2) as ranks:
        old = [table(node, initializer="ones") for node in ranks]
        new = table(ranks[0], initializer="zeros", timeout_s=0.5)
        with pytest.raises(RuntimeError, match=r"rank 1, .* 'table', has not built the layer"):
            _everything(new)
        table(ranks[1], initializer="zeros")
        assert np.all(_everything(new) == 0.0)
        assert np.all(_everything(old[0]) == 1.0)


def test_ranks_that_disagree_about_a_table():
    with nodes(2) as ranks:
        mine = table(ranks[0], rows=10, initializer="zeros")
        table(ranks[1], rows=11, kind="columns", optimizer=RowwiseAdagrad(0.1), seed=4)
        with pytest.raises(RuntimeError) as raised:
            _everything(mine)
        assert (
            "the ranks disagree about layer 'table': 10 rows of 3 float32 by rows, SparseSGD, "
            "Zeros with seed 0 on this rank; 11 rows of 3 float32 by columns, RowwiseAdagrad, "
            "RandomUniform with seed 4 on rank 1. Build the same layers"
        ) in str(raised.value)


def test_owner_that_does_not_answer():
    with nodes(2) as ranks:
        tables = [table(node, timeout_s=0.6) for node in ranks]
        with tables[1].shard.lock:  # its service waits
            started = time.monotonic()
            with pytest.raises(
                RuntimeError, match=r"rank 1, .* 'table', has not answered for 0.6 s \(timeout_s"
            ):
                _everything(tables[0])
            assert time.monotonic() - started > 0.5
            assert np.all(np.isfinite(tables[0].look_up(np.array([0, 2]))))  # its own
        # The late answer of the lookup above must not be taken for that of another.
        assert np.array_equal(_everything(tables[0]), _everything(tables[1]))


def test_reply_tags_are_used_again_after_errors(monkeypatch):
    monkeypatch.setattr(messages, "LAST_REPLY_TAG", 3)
    with nodes(2) as ranks:
        tables = [table(node, timeout_s=0.1) for node in ranks]
        expected = _everything(tables[0])
        with tables[1].shard.lock:  # its service waits
            for _ in range(3):
                with pytest.raises(RuntimeError, match="has not answered for"):
                    _everything(tables[0])
            with pytest.raises(RuntimeError, match="all 3 conversations still wait for owners"):
                _everything(tables[0])
        # The late answers are taken away, and are not taken for those of other conversations.
        for _ in range(100):
            try:
                assert np.array_equal(tables[0].look_up(np.array([3])), expected[[3]])
                break
            except RuntimeError:
                time.sleep(0.05)
        for row in range(_ROWS):
            assert np.array_equal(tables[0].look_up(np.array([row])), expected[[row]])
        # Nothing is sent to a rank that is gone, so there is no reply to be kept apart.
        ranks[0].service._gone[1] = "it has ended its program"
        for _ in range(10):
            with pytest.raises(RuntimeError, match="is gone: it has ended its program"):
                _everything(tables[0])


def test_reply_tags_of_an_owner_that_is_gone_are_used_again(monkeypatch):
    monkeypatch.setattr(messages, "LAST_REPLY_TAG", 1)
    with nodes(3) as ranks:
        tables = [table(node, timeout_s=0.1) for node in ranks]
        with tables[1].shard.lock:
            with pytest.raises(RuntimeError, match=r"rank 1, .* has not answered for"):
                _everything(tables[0])
            with pytest.raises(RuntimeError, match="all 1 conversations"):
                tables[0].look_up(np.array([2]))
            ranks[0].service._gone[1] = "it has ended its program"
            assert tables[0].look_up(np.array([2])).shape == (1, 3)


@pytest.mark.parametrize(
    "message",
    [
        b"short",
        messages.encode_request(messages.Request(messages.FLUSH, reply_tag=40_000)),
    ],
    ids=["no request", "no such tag"],
)
def test_owner_goes_on_after_a_request_that_makes_no_sense(message, capsys):
    with nodes(2) as ranks:
        tables = [table(node) for node in ranks]
        ranks[0].client._channel.send(1, messages.REQUEST_TAG, message)
        assert np.array_equal(_everything(tables[0]), _everything(tables[1]))
    assert "Traceback" in capsys.readouterr().err


def test_owner_that_ends_with_an_error_is_noticed_at_once():
    with nodes(2) as ranks:
        tables = [table(node, timeout_s=60.0) for node in ranks]
        with tables[1].shard.lock:
            raised = []

            def look_up():
                try:
                    _everything(tables[0])
                except RuntimeError as error:
                    raised.append(str(error))

            thread = threading.Thread(target=look_up)
            thread.start()
            time.sleep(0.1)
            ranks[1].service._tell_all(messages.GONE)  # as abort does, once it is not stuck
            thread.join(20)
        assert raised and "rank 1" in raised[0] and "has ended its program" in raised[0]
        with pytest.raises(RuntimeError, match="is gone: it has ended its program"):
            tables[0].update(np.array([1]), np.ones((1, 3)))


def test_rank_that_finishes_early_answers_until_all_have_finished():
    with nodes(3) as ranks:
        tables = [table(node, initializer="zeros") for node in ranks]
        silent = {}

        def close(rank):
            silent[rank] = ranks[rank].service.close(patience_s=20)

        threads = [threading.Thread(target=close, args=(rank,)) for rank in (2, 1)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        assert all(thread.is_alive() for thread in threads)
        assert np.all(_everything(tables[0]) == 0.0)
        close(0)
        for thread in threads:
            thread.join(20)
        assert silent == {0: [], 1: [], 2: []}


def test_rank_that_ends_does_not_wait_for_one_that_gives_no_sign():
    with nodes(2) as ranks:
        tables = [table(node) for node in ranks]
        with tables[0].shard.lock:
            thread = threading.Thread(target=lambda: _everything(tables[1]), daemon=True)
            thread.start()
            time.sleep(0.1)  # now the service of rank 0 is stuck in this lookup
            assert ranks[1].service.close(patience_s=0.5) == [0]
        thread.join(20)


def test_released_table():
    with nodes(2) as ranks:
        tables = [table(node) for node in ranks]
        tables[1].release()
        with pytest.raises(RuntimeError, match=r"rank 1, .* it has released layer 'table' while"):
            _everything(tables[0])


class _Failing(SparseSGD):
    def apply(self, *arguments):
        raise ArithmeticError("no update today")


def test_update_that_fails_on_the_owner_is_an_error_of_the_next_lookup(capsys):
    with nodes(2) as ranks:
        tables = [table(node, optimizer=_Failing(1.0)) for node in ranks]
        tables[0].update(np.array([1]), np.ones((1, 3)))
        message = "rank 1, .* an update that rank 0 sent has failed .*ArithmeticError: no update"
        with pytest.raises(RuntimeError, match=message):
            tables[0].look_up(np.array([3]))
        with pytest.raises(RuntimeError, match=message):
            tables[0].flush()
    assert "no update today" in capsys.readouterr().err


def test_channel_that_is_closed():
    with nodes(2) as ranks:
        tables = [table(node) for node in ranks]
    with pytest.raises(RuntimeError, match="rank 1, which owns a part of layer 'table'"):
        _everything(tables[0])


def test_initializer_of_keras_is_used():
    with nodes(1) as (alone,):
        values = _everything(table(alone, initializer=keras.initializers.Constant(3.0)))
        assert np.all(values == 3.0)
