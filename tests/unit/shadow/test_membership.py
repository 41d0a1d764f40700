"""Ranks that are slow, gone or different."""

import time

import numpy as np
import pytest
import ranks
import tensorflow as tf

from hvd_p3.shadow import ElasticAveraging, ModelAveraging, SynchronizationError
from hvd_p3.shadow.foreground import ForegroundSession
from hvd_p3.shadow.group import MEETING_TAG, VERDICT_TAG, Group
from hvd_p3.shadow.membership import Membership

_TIMEOUT_S = 0.2
_NOTHING_FAILED = {"finished": False, "failed": False, "signature": None}


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
            channel.receive(0, 100, 20)
            with pytest.raises(SynchronizationError, match=r"have given up rank 1.*0.4 s"):
                membership.meet()
            channel.send(0, 101, b"told")
            return None
        gone = membership.meet().gone
        channel.send(1, 100, b"given up")
        while True:
            membership.show_life()  # answers rank 1
            try:
                channel.receive(1, 101, 0.01)
            except TimeoutError:
                continue
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


def test_without_the_leader_the_next_one_leads():
    def program(channel):
        if channel.rank == 0:
            return None
        membership = _membership(channel)
        verdicts = [membership.meet(finished=True) for _ in range(2)]
        return [(each.gone, each.failed, each.failures, each.finished) for each in verdicts]

    # What has followed the last verdict may have failed: it may not have come everywhere.
    expected = [([0], True, 0, True), ([], False, 0, True)]
    assert ranks.run(3, program) == [None, expected, expected]


def test_a_leader_is_lost_between_two_of_its_verdicts():
    """Rank 1 has heard the verdict, rank 2 has not; the next leader brings both together."""

    def program(channel):
        membership = _membership(channel)
        if channel.rank == 0:
            alive = membership._alive
            verdict = membership._verdict(
                {rank: {"number": 1, **_NOTHING_FAILED} for rank in range(3)}, []
            )
            alive.send(1, VERDICT_TAG, verdict)
            return None
        if channel.rank == 1:
            assert membership.meet().gone == []
        first = membership.meet()
        second = membership.meet()
        assert second.gone == []
        assert not second.failed
        return first.gone, first.failed, membership._number, membership._group.generation

    _, one, other = ranks.run(3, program)
    assert one == other
    assert one[:3] == ([0], True, 3)


def test_without_two_leaders_the_third_leads():
    def program(channel):
        if channel.rank < 2:
            return None
        verdict = _membership(channel).meet()
        return verdict.gone

    assert ranks.run(3, program) == [None, None, [0, 1]]


def test_a_rank_that_needs_the_leader_says_that_it_is_gone():
    def program(channel):
        if channel.rank > 0:
            with pytest.raises(SynchronizationError, match=r"rank 0.* not heard of for 0.4 s"):
                _membership(channel).meet(needs_leader=True)

    ranks.run(3, program)


def test_a_rank_that_dies_after_it_has_come_is_given_up_too():
    def program(channel):
        membership = _membership(channel)
        if channel.rank == 1:
            return None
        if channel.rank == 2:
            membership._alive.send(0, MEETING_TAG, {"number": 1, **_NOTHING_FAILED})
            return None
        gone = []
        for _ in range(3):
            gone += membership.meet().gone
        return sorted(gone)

    assert ranks.run(4, program) == [[1, 2], None, None, [1, 2]]


@pytest.mark.parametrize("missing", [0, 1])
def test_nobody_may_be_missing_at_the_start(missing):
    def program(channel):
        if channel.rank == missing:
            return
        with pytest.raises(TimeoutError, match=rf"rank {missing}.* (heard of for|within) 0.4 s"):
            _membership(channel).meet(signature=["w"], limit_s=0.4)

    ranks.run(3, program)


@pytest.mark.parametrize("leaving", [0, 1])
def test_a_rank_that_leaves_keeps_nobody_waiting(leaving):
    def program(channel):
        membership = Membership(Group(channel, 60.0), session=1)
        if channel.rank == leaving:
            membership.leave(returns=True)
            return None
        gone = membership.meet().gone
        return gone, membership.left, membership.returning

    expected = [([leaving], {leaving}, {leaving})] * 3
    expected[leaving] = None
    assert ranks.run(3, program) == expected


def _given_up(membership):
    """Shows life until a rank is given up; returns those that are."""
    gone = []
    while not gone:
        gone = membership.show_life(give_up=True)
        time.sleep(0.01)
    return gone


def test_those_who_meet_only_at_the_end_find_out_before():
    def program(channel):
        if channel.rank == 1:
            return None
        membership = _membership(channel)
        gone = _given_up(membership)
        assert 1 not in membership._group.ranks
        return gone, membership.meet().gone

    assert ranks.run(3, program) == [([1], []), None, ([1], [])]


def test_those_who_meet_only_at_the_end_find_out_that_the_leader_is_gone():
    def program(channel):
        if channel.rank == 0:
            return None
        membership = _membership(channel)
        gone = _given_up(membership)
        verdict = membership.meet()
        return gone, verdict.gone, verdict.failed

    assert ranks.run(3, program)[1:] == 2 * [([0], [], True)]


def test_who_waits_knows_for_whom():
    def program(channel):
        membership = _membership(channel)
        waited_for = []
        if channel.rank == 2:
            end = time.monotonic() + 2 * _TIMEOUT_S
            while time.monotonic() < end:
                membership.show_life()
                time.sleep(0.01)
        membership.meet(waits_for=waited_for.append)
        return waited_for

    *others, last = ranks.run(3, program)
    assert all([2] in waited_for for waited_for in others)
    assert [2] not in last


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
