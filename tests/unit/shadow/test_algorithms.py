"""The arithmetic of each algorithm, against the formulas written out in NumPy."""

import numpy as np
import pytest
import ranks

from hvd_p3.shadow import BlockwiseModelUpdateFiltering, ElasticAveraging, ModelAveraging
from hvd_p3.shadow.group import Group

_RANKS = 3
_SIZE = 11
_ROUNDS = 5


def _start():
    return np.random.default_rng(1).normal(size=_SIZE)


def _trained(rank, round_number):
    """What training adds to a rank's weights before a synchronisation."""
    return np.random.default_rng([rank, round_number]).normal(size=_SIZE)


def _blended(weights, target, alpha):
    return (1 - alpha) * weights + alpha * target


def _run(make_algorithm, in_turn=False):
    """Trains and synchronises; returns (last weights, final weights) of each rank.

    Args:
        make_algorithm: Function without arguments.
        in_turn: bool, whether ranks synchronise one after the other, not together.
    """

    def program(channel):
        group = Group(channel, timeout_s=20)
        algorithm = make_algorithm()
        weights = _start()
        algorithm.start(weights, group)
        for round_number in range(_ROUNDS):
            weights = weights + _trained(channel.rank, round_number)
            for rank in range(_RANKS if in_turn else 1):
                if not in_turn or rank == channel.rank:
                    before = weights.copy()
                    target = algorithm.synchronize(weights, group)
                    np.testing.assert_array_equal(weights, before)
                    weights = _blended(weights, target, algorithm.alpha)
                if in_turn:
                    channel.all_reduce(np.zeros(1))
        final = algorithm.finish(weights, group)
        channel.all_reduce(np.zeros(1))
        algorithm.stop()
        return weights, final

    return ranks.run(_RANKS, program)


def _assert_same(results, expected, expected_final):
    for rank, (weights, final) in enumerate(results):
        np.testing.assert_allclose(weights, expected[rank], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(final, expected_final, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_model_averaging(alpha):
    results = _run(lambda: ModelAveraging(alpha))

    w = np.stack(_RANKS * [_start()])
    for t in range(_ROUNDS):
        w += np.stack([_trained(i, t) for i in range(_RANKS)])
        w_mean = w.mean(axis=0)
        w = (1 - alpha) * w + alpha * w_mean
    _assert_same(results, w, w.mean(axis=0))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(("alpha", "eta", "momentum"), [(0.4, 0.7, 0.6), (1.0, 1.0, 0.0)])
def test_blockwise_model_update_filtering(alpha, eta, momentum, nesterov):
    results = _run(lambda: BlockwiseModelUpdateFiltering(alpha, eta, momentum, nesterov))

    w = np.stack(_RANKS * [_start()])
    w_global = _start()
    d = np.zeros(_SIZE)
    for t in range(_ROUNDS):
        w += np.stack([_trained(i, t) for i in range(_RANKS)])
        d = momentum * d + eta * (w.mean(axis=0) - w_global)
        w_global = w_global + d
        w = (1 - alpha) * w + alpha * (w_global + (momentum * d if nesterov else 0))
    d = momentum * d + eta * (w.mean(axis=0) - w_global)
    _assert_same(results, w, w_global + d)


@pytest.mark.parametrize("servers", [None, 1, 2, [2, 0]])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_elastic_averaging(alpha, servers):
    results = _run(lambda: ElasticAveraging(alpha, servers), in_turn=True)

    w = np.stack(_RANKS * [_start()])
    w_0 = _start()
    for t in range(_ROUNDS):
        w += np.stack([_trained(i, t) for i in range(_RANKS)])
        for i in range(_RANKS):
            w_0 = (1 - alpha) * w_0 + alpha * w[i]
            w[i] = (1 - alpha) * w[i] + alpha * w_0
    _assert_same(results, w, w_0)


def test_elastic_averaging_at_the_same_time_loses_nothing():
    """Each of many concurrent requests moves the central weights: all ones from zero."""

    def program(channel):
        group = Group(channel, timeout_s=20)
        algorithm = ElasticAveraging(alpha=0.01)
        algorithm.start(np.zeros(_SIZE), group)
        for _ in range(20):
            algorithm.synchronize(np.ones(_SIZE), group)
        channel.all_reduce(np.zeros(1))
        final = algorithm.finish(np.ones(_SIZE), group)
        channel.all_reduce(np.zeros(1))
        algorithm.stop()
        return final

    for final in ranks.run(_RANKS, program):
        np.testing.assert_allclose(final, 1 - 0.99 ** (20 * _RANKS), rtol=1e-12)


def test_elastic_averaging_without_one_server():
    """A server that does not answer: its share of the weights stays, the others go on."""

    def program(channel):
        group = Group(channel, timeout_s=0.3)
        algorithm = ElasticAveraging(alpha=0.5)
        algorithm.start(np.zeros(4), group)
        channel.all_reduce(np.zeros(1))
        if channel.rank == 1:
            algorithm.stop()
            channel.all_reduce(np.zeros(1))
            return None
        channel.all_reduce(np.zeros(1))
        with pytest.warns(UserWarning, match=r"server on rank 1 did not answer for 0.3 s"):
            target = algorithm.synchronize(np.ones(4), group)
        again = algorithm.synchronize(np.ones(4), group)
        group.keep([0])
        final = algorithm.finish(np.full(4, 3.0), group)
        algorithm.stop()
        return target, again, final

    (target, again, final), _ = ranks.run(2, program)
    np.testing.assert_array_equal(target, [0.5, 0.5, 1, 1])
    np.testing.assert_array_equal(again, [0.75, 0.75, 1, 1])
    np.testing.assert_array_equal(final, [0.75, 0.75, 3, 3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelAveraging(0), "alpha above 0 and up to 1. Received: alpha=0"),
        (lambda: ModelAveraging(1.5), "alpha=1.5"),
        (lambda: ModelAveraging(float("nan")), "alpha=nan"),
        (lambda: BlockwiseModelUpdateFiltering(0.5, eta=0), "eta above 0. Received: eta=0"),
        (lambda: BlockwiseModelUpdateFiltering(block_momentum=1), "block_momentum=1"),
        (lambda: ElasticAveraging(-0.1), "alpha=-0.1"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("servers", [0, 3, [], [0, 0], [2], "all"])
def test_bad_servers(servers):
    def program(channel):
        with pytest.raises(ValueError, match=r"servers from 1 to 2.*Received: servers="):
            ElasticAveraging(servers=servers).start(np.zeros(4), Group(channel, 1))

    ranks.run(2, program)
