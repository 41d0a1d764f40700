"""Ranks with different quadratic objectives come to a known common point.

Rank i minimises (w - c_i)' A_i (w - c_i) / 2 by gradient descent. The common optimum is the mean of
all c_i, weighted by A_i. Ranks that do not synchronise, or whose blends are lost, come to their own
c_i instead, whose mean is another point since the A_i differ: the tests tell them apart.

In the foreground the point to which ranks come is known exactly: each round of steps and blend is
linear. In the background it is known for synchronisations that follow each other closely, and the
ranks train at the same speed: of a rank that trains more, the objective counts for more.
"""

import threading
import time

import numpy as np
import pytest
import ranks
import tensorflow as tf

from hvd_p3.shadow import BlockwiseModelUpdateFiltering, ElasticAveraging, ModelAveraging
from hvd_p3.shadow.background import BackgroundSession
from hvd_p3.shadow.foreground import ForegroundSession

_RANKS = 3
_RATE = 0.05
_CLOSE_RATE = 0.02  # in the background, so that little happens between two synchronisations
_A = np.array([[0.5, 1.0, 2.0], [2.0, 0.5, 1.0], [1.0, 2.0, 0.5]])  # by rank
_OPTIMA = np.array([[2.0, -1.0, 0.5], [-1.0, 1.5, -0.5], [0.5, -2.0, 2.0]])

_COMMON = np.sum(_A * _OPTIMA, axis=0) / np.sum(_A, axis=0)
_UNSYNCHRONIZED = np.mean(_OPTIMA, axis=0)


def _averaging_fixed_point(alpha, every):
    """Where the mean comes to when all blend with it after every so many steps; in each element."""
    shrink = (1 - _RATE * _A) ** every
    mean = np.full((_RANKS, _RANKS), 1 / _RANKS)
    blend = (1 - alpha) * np.eye(_RANKS) + alpha * mean
    result = []
    for element in range(3):
        constant = blend @ ((1 - shrink[:, element]) * _OPTIMA[:, element])
        matrix = np.eye(_RANKS) - blend * shrink[:, element]
        result.append(np.mean(np.linalg.solve(matrix, constant)))
    return np.array(result)


def _step(variable, rank, rate):
    optimum = tf.constant(_OPTIMA[rank])
    return tf.function(lambda: variable.assign_sub(rate * _A[rank] * (variable - optimum)))


def _train(channel, session_type, algorithm, steps, barrier=None, **how):
    """Returns the last weights, those before the end, a variable not trained, and the report.

    With a barrier, ranks step together, and after each step wait for a synchronisation.
    """
    variable = tf.Variable(np.full(3, 5.0 * channel.rank))
    other = tf.Variable(float(channel.rank))  # not trained
    session = session_type(algorithm, [variable, other], channel, 1, 20.0, **how)
    session.start()
    assert variable.numpy().tolist() == [0, 0, 0], "all start as the first"
    step = _step(variable, channel.rank, _RATE if barrier is None else _CLOSE_RATE)
    for _ in range(steps):
        if barrier is not None:
            barrier.wait(60)
        step()
        session.step(examples=8)
        if barrier is not None:
            _wait_for_synchronization(session)
    before_end = variable.numpy()
    session.end()
    assert session.error is None
    return variable.numpy(), before_end, other.numpy(), session.report


def _wait_for_synchronization(session):
    before = session.counts().synchronizations
    while session.counts().synchronizations == before:
        assert session._thread.is_alive()
        time.sleep(0.0002)


def _assert_equal_and_near(results, expected, tolerance):
    assert np.all(np.abs(expected - _UNSYNCHRONIZED) > 2 * tolerance), "this would prove nothing"
    for weights, before_end, other, report in results:
        np.testing.assert_array_equal(weights, results[0][0])
        np.testing.assert_allclose(weights, expected, atol=tolerance)
        # Ranks were together before the end, not only after it.
        assert np.max(np.abs(before_end - weights)) < 0.5 * np.min(np.ptp(_OPTIMA, axis=0))
        assert other == 0
        assert report.ranks == list(range(_RANKS))
        assert report.examples_per_s > 0


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_model_averaging_in_the_foreground(alpha):
    results = ranks.run(
        _RANKS,
        lambda channel: _train(channel, ForegroundSession, ModelAveraging(alpha), 500, every=5),
    )
    _assert_equal_and_near(results, _averaging_fixed_point(alpha, 5), 1e-5)
    assert results[0][-1].average_sync_gap == 5


@pytest.mark.parametrize(("eta", "momentum"), [(1.0, 0.0), (0.8, 0.5)])
def test_blockwise_model_update_filtering_in_the_foreground(eta, momentum):
    algorithm = lambda: BlockwiseModelUpdateFiltering(1.0, eta, momentum)  # noqa: E731
    results = ranks.run(
        _RANKS, lambda channel: _train(channel, ForegroundSession, algorithm(), 500, every=5)
    )
    _assert_equal_and_near(results, _averaging_fixed_point(1.0, 5), 1e-5)


@pytest.mark.parametrize(
    "make_algorithm",
    [
        lambda: ModelAveraging(0.5),
        lambda: BlockwiseModelUpdateFiltering(0.5, eta=0.8, block_momentum=0.5),
        lambda: ElasticAveraging(0.3, servers=2),
    ],
    ids=["model averaging", "blockwise filtering", "elastic averaging"],
)
def test_in_the_background(make_algorithm):
    barrier = threading.Barrier(_RANKS)
    results = ranks.run(
        _RANKS,
        lambda channel: _train(
            channel, BackgroundSession, make_algorithm(), 400, barrier, interval_s=0.0
        ),
    )
    _assert_equal_and_near(results, _COMMON, 0.1)
    assert 0 < results[0][-1].average_sync_gap <= 1


def _elastic_fixed_point(alpha, every):
    """Where the central weights come to when ranks synchronise in turn: linear for each element."""
    shrink = (1 - _RATE * _A) ** every
    result = []
    for element in range(3):
        matrix, constant = np.eye(_RANKS + 1), np.zeros(_RANKS + 1)  # of w_1 .. w_n, w_0
        for rank in range(_RANKS):
            step, shift = np.eye(_RANKS + 1), np.zeros(_RANKS + 1)
            step[rank, rank] = shrink[rank, element]
            shift[rank] = (1 - shrink[rank, element]) * _OPTIMA[rank, element]
            central = np.eye(_RANKS + 1)
            central[-1, -1], central[-1, rank] = 1 - alpha, alpha
            local = np.eye(_RANKS + 1)
            local[rank, rank], local[rank, -1] = 1 - alpha, alpha
            whole = local @ central
            matrix, constant = whole @ step @ matrix, whole @ (step @ constant + shift)
        result.append(np.linalg.solve(np.eye(_RANKS + 1) - matrix, constant)[-1])
    return np.array(result)


def test_elastic_averaging_in_turn():
    alpha, every = 0.3, 5

    def program(channel):
        variable = tf.Variable(np.zeros(3))
        session = ForegroundSession(
            ElasticAveraging(alpha), [variable], channel, 1, 20.0, every=every
        )
        session.start()
        step = _step(variable, channel.rank, _RATE)
        for _ in range(80):
            for rank in range(_RANKS):
                if rank == channel.rank:
                    for _ in range(every):
                        step()
                        session.step()
                channel.all_reduce(np.zeros(1))
        central = session._synchronizer._algorithm
        final = central.finish(variable.numpy(), session._synchronizer._group)
        session.end()
        return final

    expected = _elastic_fixed_point(alpha, every)
    for final in ranks.run(_RANKS, program):
        np.testing.assert_allclose(final, expected, atol=5e-4)
