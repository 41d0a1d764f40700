"""Ranks that are slow, gone or different."""

import time
import warnings

import numpy as np
import pytest
import ranks
import tensorflow as tf

from hvd_p3.shadow import ElasticAveraging, ModelAveraging, SynchronizationError
from hvd_p3.shadow.background import BackgroundSession
from hvd_p3.shadow.channel import in_process_channels
from hvd_p3.shadow.foreground import ForegroundSession
from hvd_p3.shadow.group import Group
from hvd_p3.shadow.membership import Membership

_TIMEOUT_S = 0.2


def _membership(channel):
    return Membership(Group(channel, _TIMEOUT_S), session=1)


def test_all_meet_and_know_who_has_finished():
    def program(channel):
        membership = _membership(channel)
        first = membership.meet(finished=channel.rank == 0)
        second = membership.meet(finished=True, failed=channel.rank == 1)
        return first.finished, first.failed, second.finished, second.failed, second.gone

    assert ranks.run(3, program) == 3 * [(False, False, True, True, [])]


def test_a_rank_that_does_not_come_is_given_up():
    def program(channel):
        if channel.rank == 1:
            return None
        membership = _membership(channel)
        return [membership.meet().gone for _ in range(3)]

    assert ranks.run(3, program) == [[[1], [], []], None, [[1], [], []]]


def test_a_rank_that_is_given_up_is_told_so():
    def program(channel):
        membership = _membership(channel)
        if channel.rank == 1:
            time.sleep(4 * _TIMEOUT_S)
            with pytest.raises(SynchronizationError, match=r"have given up rank 1.*0.4 s"):
                membership.meet()
            return None
        gone = membership.meet().gone
        membership._limit_s = 30
        membership._hear(2.0)  # answers rank 1
        return gone

    assert ranks.run(2, program) == [[1], None]


def test_signs_of_life_keep_a_rank():
    def program(channel):
        membership = _membership(channel)
        end = time.monotonic() + 4 * _TIMEOUT_S
        while channel.rank == 2 and time.monotonic() < end:
            membership.show_life()
            time.sleep(0.01)
        return membership.meet().gone

    assert ranks.run(3, program) == [[], [], []]


def test_the_leader_shows_signs_of_life_too():
    def program(channel):
        membership = _membership(channel)
        end = time.monotonic() + 4 * _TIMEOUT_S
        while channel.rank == 0 and time.monotonic() < end:
            membership.show_life()
            time.sleep(0.01)
        return membership.meet().gone

    assert ranks.run(2, program) == [[], []]


def test_without_the_leader_the_others_say_so():
    def program(channel):
        if channel.rank > 0:
            with pytest.raises(SynchronizationError, match=r"rank 0.* not heard of for 0.4 s"):
                _membership(channel).meet()

    ranks.run(3, program)


@pytest.mark.parametrize("leaving", [0, 1])
def test_a_rank_that_leaves_keeps_nobody_waiting(leaving):
    def program(channel):
        membership = Membership(Group(channel, 60.0), session=1)
        if channel.rank == leaving:
            membership.leave()
        elif leaving == 0:
            with pytest.raises(SynchronizationError, match=r"rank 0.*has ended synchronisation"):
                membership.meet()
        else:
            return membership.meet().gone
        return None

    assert ranks.run(2, program)[0] == (None if leaving == 0 else [1])


@pytest.mark.parametrize("collective", [False, True])
def test_different_variables_are_an_error_on_all_ranks(collective):
    def program(channel):
        variables = [tf.Variable(np.zeros(2 + channel.rank), name="w")]
        algorithm = ModelAveraging() if collective else ElasticAveraging()
        session = ForegroundSession(algorithm, variables, channel, 1, 5.0, every=1)
        with pytest.raises(ValueError, match=r"'w:0' float64\[2\] on rank 0, .*\[3\] on rank 1"):
            session.start()

    ranks.run(2, program)


def test_different_numbers_of_variables_are_an_error():
    def program(channel):
        variables = [tf.Variable(0.0) for _ in range(1 + channel.rank)]
        session = ForegroundSession(ModelAveraging(), variables, channel, 1, 5.0, every=1)
        with pytest.raises(ValueError, match="1 on rank 0, 2 on rank 1"):
            session.start()

    ranks.run(2, program)


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


def test_without_the_first_rank_the_others_finish_on_their_own():
    channels = in_process_channels("test", 3)

    def program(channel):
        if channel.rank == 0:
            session = ForegroundSession(
                ModelAveraging(), [tf.Variable([0.0, 1.0])], channel, 1, _TIMEOUT_S, every=1
            )
            session.start()
            channel.close()
            return None
        with warnings.catch_warnings(record=True):
            weights, session = _train(channel, ModelAveraging, 30, step_s=0.02)
        assert isinstance(session.error, SynchronizationError)
        assert session.report is None
        return weights[0]

    assert ranks.run(3, program, channels)[1:] == [30, 30]
