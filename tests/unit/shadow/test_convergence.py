"""Ranks with different quadratic objectives come to the known common optimum.

Rank i minimises (w - c_i)' A (w - c_i) / 2 by gradient descent. Since A is the same for all, the
mean of the ranks' weights descends on the mean objective, whose optimum is the mean of all c_i, as
long as synchronisation does not move the mean: it must lose no update and blend towards the mean.

In the background, a blend comes between other steps on each rank, which moves the mean a little.
The ranks train at the same speed there: of a rank that trains more, the objective counts for more.
"""

import threading

import numpy as np
import pytest
import ranks
import tensorflow as tf

from hvd_p3.shadow import BlockwiseModelUpdateFiltering, ElasticAveraging, ModelAveraging
from hvd_p3.shadow.background import BackgroundSession
from hvd_p3.shadow.foreground import ForegroundSession

_RANKS = 3
_A = np.array([0.5, 1.0, 2.0])
_RATE = 0.05


def _optimum_of(rank):
    return np.random.default_rng(rank).normal(size=3)


_COMMON = np.mean([_optimum_of(rank) for rank in range(_RANKS)], axis=0)


def _train(channel, session_type, algorithm, steps, barrier=None, **how):
    variable = tf.Variable(np.full(3, 5.0 * channel.rank))
    other = tf.Variable(float(channel.rank))  # not trained
    session = session_type(algorithm, [variable, other], channel, 1, 20.0, **how)
    session.start()
    assert variable.numpy().tolist() == [0, 0, 0], "all start as the first"
    optimum = tf.constant(_optimum_of(channel.rank))
    step = tf.function(lambda: variable.assign_sub(_RATE * _A * (variable - optimum)))
    for _ in range(steps):
        if barrier is not None:
            barrier.wait(60)
        step()
        session.step(examples=8)
    session.end()
    assert session.error is None
    return variable.numpy(), other.numpy(), session.report


def _assert_equal_and_near(results, expected, tolerance):
    for weights, other, report in results:
        np.testing.assert_array_equal(weights, results[0][0])
        np.testing.assert_allclose(weights, expected, atol=tolerance)
        assert other == 0
        assert report.ranks == list(range(_RANKS))
        assert report.examples_per_s > 0
        assert report.average_sync_gap > 0


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_model_averaging_in_the_foreground(alpha):
    results = ranks.run(
        _RANKS,
        lambda channel: _train(channel, ForegroundSession, ModelAveraging(alpha), 500, every=5),
    )
    _assert_equal_and_near(results, _COMMON, 1e-5)
    assert results[0][2].average_sync_gap == 5


@pytest.mark.parametrize(("eta", "momentum"), [(1.0, 0.0), (0.8, 0.5)])
def test_blockwise_model_update_filtering_in_the_foreground(eta, momentum):
    algorithm = lambda: BlockwiseModelUpdateFiltering(1.0, eta, momentum)  # noqa: E731
    results = ranks.run(
        _RANKS, lambda channel: _train(channel, ForegroundSession, algorithm(), 500, every=5)
    )
    _assert_equal_and_near(results, _COMMON, 1e-5)


@pytest.mark.parametrize(
    "make_algorithm",
    [
        lambda: ModelAveraging(0.5),
        lambda: BlockwiseModelUpdateFiltering(0.5),
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
    # A tenth of how far the ranks' own optima are from each other.
    _assert_equal_and_near(results, _COMMON, 0.15)


def _elastic_fixed_point(alpha, every):
    """Where the central weights come to when ranks synchronise in turn: linear for each element."""
    shrink = (1 - _RATE * _A) ** every
    result = []
    for element in range(3):
        matrix, constant = np.eye(_RANKS + 1), np.zeros(_RANKS + 1)  # of w_1 .. w_n, w_0
        for rank in range(_RANKS):
            step, shift = np.eye(_RANKS + 1), np.zeros(_RANKS + 1)
            step[rank, rank] = shrink[element]
            shift[rank] = (1 - shrink[element]) * _optimum_of(rank)[element]
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
        for _ in range(80):
            for rank in range(_RANKS):
                if rank == channel.rank:
                    for _ in range(every):
                        variable.assign_sub(_RATE * _A * (variable - _optimum_of(rank)))
                        session.step()
                channel.all_reduce(np.zeros(1))
        central = session._synchronizer._algorithm
        final = central.finish(variable.numpy(), session._synchronizer._group)
        session.end()
        return final

    expected = _elastic_fixed_point(alpha, every)
    for final in ranks.run(_RANKS, program):
        np.testing.assert_allclose(final, expected, atol=5e-4)
