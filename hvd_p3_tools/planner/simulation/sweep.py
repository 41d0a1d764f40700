"""Simulations of several schemes, numbers of ranks and bandwidths."""

import dataclasses

from hvd_p3_tools.planner.simulation.simulator import simulate


def sweep(profile, cluster, schemes, ranks, bandwidths, settings=None):
    """Simulates all combinations.

    Args:
        profile: `profile.Profile`.
        cluster: `Cluster`, of which ranks and bandwidth are replaced.
        schemes: list of str.
        ranks: list of int.
        bandwidths: list of float, bytes per second.
        settings: `Settings`.

    Returns:
        List of `Result`, by number of ranks, then bandwidth, then scheme, in the order given.
    """
    results = []
    for number in ranks:
        for bandwidth in bandwidths:
            network = dataclasses.replace(cluster.network, bandwidth=bandwidth)
            each = dataclasses.replace(cluster, ranks=number, network=network)
            results.extend(simulate(profile, each, scheme, settings) for scheme in schemes)
    return results
