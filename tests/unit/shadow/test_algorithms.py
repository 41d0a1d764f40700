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

    # Chen and Huo (2016), with their names: block momentum `eta_t`, block learning rate `zeta_t`.
    # Workers start block t from W_g(t - 1), which is W(t - 1) with classical block momentum, and
    # W(t - 1) + eta_t Delta(t - 1) with Nesterov's; G(t) is measured from there.
    eta_t, zeta_t = momentum, eta
    workers = np.stack(_RANKS * [_start()])
    model = global_model = _start()
    delta = np.zeros(_SIZE)

    def end_of_block(workers, model, global_model, delta):
        gradient = workers.mean(axis=0) - global_model
        delta = eta_t * delta + zeta_t * gradient
        model = model + delta
        return model, model + eta_t * delta if nesterov else model, delta

    for t in range(_ROUNDS):
        workers = workers + np.stack([_trained(i, t) for i in range(_RANKS)])
        model, global_model, delta = end_of_block(workers, model, global_model, delta)
        workers = (1 - alpha) * workers + alpha * global_model
    model, _, _ = end_of_block(workers, model, global_model, delta)
    _assert_same(results, workers, model)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_of_one_push_is_its_geometric_series(nesterov):
    """A push of 1 without any training after it moves the weights by 1 / (1 - momentum)."""

    def program(channel):
        group = Group(channel, timeout_s=20)
        algorithm = BlockwiseModelUpdateFiltering(1.0, block_momentum=0.9, nesterov=nesterov)
        algorithm.start(np.zeros(1), group)
        weights = np.ones(1)
        for _ in range(30):
            weights = algorithm.synchronize(weights, group)
        return algorithm._global[0]

    (moved,) = ranks.run(1, program)
    assert moved == pytest.approx((1 - 0.9**30) / (1 - 0.9))


@pytest.mark.parametrize("nesterov", [False, True])
def test_large_block_momentum_converges(nesterov):
    """Rank i descends on (w - i)^2 / 2, with 5 steps between two synchronisations."""

    def program(channel):
        group = Group(channel, timeout_s=20)
        algorithm = BlockwiseModelUpdateFiltering(1.0, 1.0, 0.9, nesterov)
        weights = np.array([5.0])
        algorithm.start(weights, group)
        for _ in range(400):
            for _ in range(5):
                weights = weights - 0.05 * (weights - channel.rank)
            weights = algorithm.synchronize(weights, group)
        return weights[0]

    mean_of_optima = np.mean(range(_RANKS))
    assert ranks.run(_RANKS, program) == pytest.approx(_RANKS * [mean_of_optima], abs=1e-6)


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
