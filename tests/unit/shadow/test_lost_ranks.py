"""Training goes on when ranks are slow, or lost."""

import threading
import time
import warnings

import numpy as np
import pytest
import ranks
import tensorflow as tf

from hvd_p3.shadow import (
    BlockwiseModelUpdateFiltering,
    ElasticAveraging,
    ModelAveraging,
    SynchronizationError,
)
from hvd_p3.shadow.background import BackgroundSession
from hvd_p3.shadow.channel import in_process_channels
from hvd_p3.shadow.foreground import ForegroundSession

_TIMEOUT_S = 0.2
_LONGER_S = 0.6  # where a rank that a busy machine holds up for some tenths would be given up


def _train(channel, make_algorithm, steps, timeout_s=_TIMEOUT_S, step_s=0.0):
    variable = tf.Variable([float(channel.rank), 1.0])
    session = BackgroundSession(
        make_algorithm(), [variable], channel, 1, timeout_s, interval_s=0.001
    )
    session.start()
    for _ in range(steps):
        variable.assign_add([1.0, 0.0])
        session.step()
        time.sleep(step_s)
    session.end()
    return variable.numpy(), session


@pytest.mark.parametrize("make_algorithm", [ModelAveraging, ElasticAveraging])
def test_ranks_that_finish_early_wait_for_slow_ones(make_algorithm):
    """Rank 1 trains ten times as long as the time limit."""

    def program(channel):
        started = time.monotonic()
        weights, session = _train(
            channel, make_algorithm, 20, step_s=0.1 if channel.rank == 1 else 0.0
        )
        assert session.error is None
        assert session.report.ranks == [0, 1, 2]
        assert time.monotonic() - started > 2, "the end is common"
        return weights

    results = ranks.run(3, program)
    for weights in results[1:]:
        np.testing.assert_array_equal(weights, results[0])


@pytest.mark.parametrize("make_algorithm", [ModelAveraging, ElasticAveraging])
def test_the_others_finish_without_a_rank_that_is_gone(make_algorithm):
    """Rank 1 stops in the middle, without a word, as a killed process does."""

    class Gone(Exception):
        pass

    channels = in_process_channels("test", 3)

    def program(channel):
        if channel.rank != 1:
            weights, session = _train(channel, make_algorithm, 30, step_s=0.02)
            assert session.error is None
            return weights, session.report.ranks
        session = ForegroundSession(
            make_algorithm(), [tf.Variable([0.0, 1.0])], channel, 1, _TIMEOUT_S, every=1
        )
        session.start()
        for _ in range(3):
            session.step()
        channel.close()
        return None

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (first, members), _, (last, _) = ranks.run(3, program, channels)
    assert members == [0, 2]
    np.testing.assert_array_equal(first, last)
    said = {str(each.message) for each in caught}
    for rank in (0, 2):
        assert any(f"on rank {rank}: rank 1 did not answer" in text for text in said), said


@pytest.mark.parametrize(
    "make_algorithm", [ModelAveraging, ElasticAveraging, lambda: ElasticAveraging(servers=[0])]
)
def test_without_the_first_rank_the_others_go_on_together(make_algorithm):
    channels = in_process_channels("test", 3)

    def program(channel):
        if channel.rank == 0:
            session = ForegroundSession(
                make_algorithm(), [tf.Variable([0.0, 1.0])], channel, 1, _LONGER_S, every=1
            )
            session.start()
            channel.close()
            return None
        weights, session = _train(channel, make_algorithm, 60, _LONGER_S, step_s=0.05)
        assert session.error is None
        return weights, session.report.ranks

    with pytest.warns(UserWarning, match="on rank 2: rank 0 did not answer and was given up"):
        _, (one, members), (other, _) = ranks.run(3, program, channels)
    assert members == [1, 2]
    np.testing.assert_array_equal(one, other)


def test_ranks_of_elastic_averaging_say_during_training_who_is_gone():
    channels = in_process_channels("test", 3)
    said = threading.Event()

    def program(channel):
        variable = tf.Variable([0.0, 1.0])
        session = BackgroundSession(
            ElasticAveraging(servers=[0]), [variable], channel, 1, _LONGER_S, interval_s=0.001
        )
        session.start()
        if channel.rank == 1:
            channel.close()
            return
        while session._group.size == 3:
            time.sleep(0.01)
        said.set()
        session.end()

    with pytest.warns(UserWarning, match="rank 1 did not answer and was given up; 2 ranks go on"):
        ranks.run(3, program, channels)
    assert said.is_set()


@pytest.mark.parametrize("make_algorithm", [ModelAveraging, BlockwiseModelUpdateFiltering])
def test_a_stall_beyond_the_time_limit_ends_nothing(make_algorithm):
    """Rank 2 comes late to one sum: its sum comes to an end, those of the others have not."""
    timeout_s = 1.0

    class Stalling(make_algorithm):
        stalls = False

        def synchronize(self, weights, group):
            if self.stalls:
                self.stalls = False
                time.sleep(1.5 * timeout_s)
            return super().synchronize(weights, group)

    def program(channel):
        variable = tf.Variable([float(channel.rank), 1.0])
        algorithm = Stalling()
        session = BackgroundSession(algorithm, [variable], channel, 1, timeout_s, interval_s=0.001)
        session.start()
        algorithm.stalls = channel.rank == 2
        time.sleep(3 * timeout_s)
        session.end()
        assert session.error is None
        assert session.report.ranks == [0, 1, 2]
        assert not algorithm.stalls
        assert session._group.generation > 0, "sums have begun afresh"
        return variable.numpy()

    with pytest.warns(UserWarning, match="took longer than 1 s on some rank.* they try again"):
        results = ranks.run(3, program)
    for weights in results[1:]:
        np.testing.assert_array_equal(weights, results[0])


def test_sums_that_always_take_too_long_end_synchronisation_on_all_ranks():
    class Slow(ModelAveraging):
        def synchronize(self, weights, group):
            if group.rank == 1:
                time.sleep(1.5 * group.timeout_s)
            return super().synchronize(weights, group)

    def program(channel):
        variable = tf.Variable([float(channel.rank), 1.0])
        session = ForegroundSession(Slow(), [variable], channel, 1, _TIMEOUT_S, every=1)
        session.start()
        for _ in range(10):
            session.step()
        session.end()
        return session.error

    with warnings.catch_warnings(record=True):
        for error in ranks.run(2, program):
            assert isinstance(error, SynchronizationError)
            assert "3 synchronisations in a row took longer" in str(error)


def test_a_long_rest_is_no_silence():
    """Ranks rest five times as long as the time limit, some that train and one that does not."""

    def program(channel):
        variable = tf.Variable([float(channel.rank), 1.0])
        session = BackgroundSession(
            ModelAveraging(), [variable], channel, 1, _LONGER_S, interval_s=5 * _LONGER_S
        )
        session.start()
        if channel.rank != 1:
            time.sleep(6 * _LONGER_S)
        session.end()
        assert session.error is None
        return session.report.ranks

    assert ranks.run(3, program) == 3 * [[0, 1, 2]]


@pytest.mark.parametrize("make_algorithm", [ModelAveraging, ElasticAveraging])
def test_a_rank_that_waits_at_the_end_says_for_whom(make_algorithm, monkeypatch):
    monkeypatch.setattr("hvd_p3.shadow.waiting._FIRST_S", 0.3)

    def program(channel):
        steps = 30 if channel.rank == 1 else 1
        _, session = _train(channel, make_algorithm, steps, timeout_s=2.0, step_s=0.05)
        assert session.error is None

    with pytest.warns(UserWarning, match="rank 0: has finished .* for rank 1, which still trains"):
        ranks.run(2, program)


def test_a_server_that_answers_late_is_asked_again():
    timeout_s = 0.3

    def program(channel):
        algorithm = ElasticAveraging(servers=[0])
        variable = tf.Variable([float(channel.rank), 1.0])
        session = ForegroundSession(algorithm, [variable], channel, 1, timeout_s, every=1)
        session.start()
        if channel.rank == 0:
            with algorithm._server._lock:  # it is held up
                channel.send(1, 200, b"held up")
                channel.receive(1, 200, 20)
        else:
            channel.receive(0, 200, 20)
            session.step()
            assert algorithm._silent == {0}
            channel.send(0, 200, b"said so")
            while algorithm._silent:
                session.step()
                time.sleep(0.01)
            before = session.counts().synchronizations
            variable.assign([8.0, 8.0])
            session.step()
            assert session.counts().synchronizations == before + 1
            assert variable.numpy()[0] < 8, "it answers"
        session.end()
        assert session.error is None
        return variable.numpy()

    with pytest.warns(UserWarning, match="server on rank 0 did not answer for 0.3 s"):
        one, other = ranks.run(2, program)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make_algorithm", [ModelAveraging, ElasticAveraging])
def test_those_that_are_left_train_again(make_algorithm):
    """Another session on the same channel is one of those that have come to the end of the last."""
    channels = in_process_channels("test", 3)

    def program(channel):
        first = None
        for number in (1, 2):
            variable = tf.Variable([float(channel.rank), 1.0])
            session = BackgroundSession(
                make_algorithm(), [variable], channel, number, _LONGER_S, first, interval_s=0.001
            )
            session.start()
            if channel.rank == 0:
                channel.close()
                return None
            time.sleep(0.1)
            session.end()
            assert session.error is None
            assert session.report.ranks == [1, 2]
            assert not session.may_begin_anew
            first = session
        return variable.numpy()

    with pytest.warns(UserWarning, match="rank 0 did not answer and was given up"):
        _, one, other = ranks.run(3, program, channels)
    np.testing.assert_array_equal(one, other)
