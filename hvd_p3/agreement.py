"""Checks at the start that all ranks run the same hvd_p3 with the same settings."""

import dataclasses

import horovod.tensorflow as horovod

from hvd_p3._build_info import HVD_P3_VERSION
from hvd_p3.configuration import environment_variable

# Settings of which rank 0's count, whatever the others have.
_OF_RANK_0 = {"timeline"}


def check_same_on_all_ranks(config):
    """Compares version and settings. Collective over all ranks, after Horovod's init.

    Args:
        config: `Configuration` of this rank.

    Raises:
        ValueError: On all ranks, if they differ; lists what each has.
    """
    mine = {"the version of hvd_p3": HVD_P3_VERSION}
    for name, value in dataclasses.asdict(config).items():
        if name not in _OF_RANK_0:
            mine[environment_variable(name)] = value
    by_rank = horovod.allgather_object(mine, name="hvd_p3.settings")
    for what in mine:
        values = [each.get(what, "unknown") for each in by_rank]
        if any(value != values[0] for value in values):
            raise ValueError(
                f"the ranks disagree about {what}: {_by_rank(values)}. Give all ranks the same "
                "installation, environment and arguments of hvd_p3.init."
            )


def _by_rank(values):
    """ "1 on ranks 0, 2; 5 on rank 1", from what each rank has."""
    ranks = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(rank)
    return "; ".join(
        f"{value} on rank{'s' if len(owners) > 1 else ''} {', '.join(map(str, owners))}"
        for value, owners in ranks.items()
    )
