"""How many GPUs reach a speedup, or keep an efficiency."""

import dataclasses
import math

from hvd_p3_tools.planner import scaling
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.simulation.simulator import simulate

MOST_GPUS = 4096


@dataclasses.dataclass(frozen=True)
class Target:
    """An answer.

    Args:
        name: str, `"speedup"` or `"efficiency"`.
        wanted: float.
        gpus: int. The least that reach the speedup, or the most that keep the efficiency, in
            simulated examples per second where each GPU keeps its batch; None if there are none up
            to `MOST_GPUS`.
        speedup: float. Simulated examples per second of these GPUs over one; of the fastest number
            that was simulated if there are none.
        lemma_gpus: int, for one task that GPUs divide; None if any number will do, or none does.
        text: str, one line.
    """

    name: str
    wanted: float
    gpus: int | None
    speedup: float
    lemma_gpus: int | None
    text: str


class Search:
    """Searches numbers of GPUs, each of which keeps its batch.

    All-reduces of powers of two may take fewer messages than those of other numbers, so each kind
    is searched by itself. Within a kind, more GPUs have a higher speedup and a lower efficiency.

    Args:
        profile: `profile.Profile`.
        cluster: `Cluster`, whose number of ranks is replaced.
        scheme: str.
        settings: `Settings`.
    """

    def __init__(self, profile, cluster, scheme, settings):
        self._profile, self._cluster = profile, cluster
        self._scheme, self._settings = scheme, settings
        self._speedups = {1: 1.0}

    def speedup(self, gpus):
        """Returns simulated examples per second over those of one GPU alone, as a float."""
        if gpus not in self._speedups:
            cluster = dataclasses.replace(self._cluster, ranks=gpus, stragglers=0)
            result = simulate(self._profile, cluster, self._scheme, self._settings)
            one = self._profile.batch / self._profile.compute_s
            self._speedups[gpus] = result.throughput / one
        return self._speedups[gpus]

    def least_for_speedup(self, wanted):
        """Returns the least number of GPUs with a speedup, or None."""
        least = next((each for each in _POWERS if self.speedup(each) >= wanted), None)
        # The speedup is never above the number of GPUs.
        others = _others(math.ceil(wanted), MOST_GPUS if least is None else least)
        index = _first(others, lambda gpus: self.speedup(gpus) >= wanted)
        return least if index == len(others) else others[index]

    def most_for_efficiency(self, wanted):
        """Returns the greatest number of GPUs with an efficiency: speedup over GPUs."""

        def fails(gpus):
            return self.speedup(gpus) < wanted * gpus

        index = _first(_POWERS, fails)
        most = _POWERS[max(0, index - 1)]
        others = _others(1, MOST_GPUS)
        index = _first(others, fails)
        return most if index == 0 else max(most, others[index - 1])

    @property
    def fastest(self):
        """int, the number with the highest speedup of those that were simulated."""
        return max(self._speedups, key=self._speedups.get)


_POWERS = tuple(1 << power for power in range(MOST_GPUS.bit_length()))


def _others(first, end):
    """The numbers from first to before end that are no powers of two."""
    return [each for each in range(first, end) if each & (each - 1)]


def _first(values, holds):
    """The index of the first value for which something holds, as it does for all that follow."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if holds(values[middle]):
            high = middle
        else:
            low = middle + 1
    return low


def for_speedup(search, wanted, way, ratio):
    """Answers how many GPUs reach a speedup.

    Args:
        search: `Search`.
        wanted: float, at least 1.
        way: str, what is simulated.
        ratio: float, R_O of the lemma.

    Returns:
        `Target`.
    """
    gpus = search.least_for_speedup(wanted)
    if gpus is None:
        gpus_text = f"no number of GPUs up to {MOST_GPUS} was found to reach it"
        best = search.fastest
        gpus_text += f"; {best} GPUs reach {search.speedup(best):.3g}"
    else:
        best = gpus
        gpus_text = f"{gpus} GPUs ({search.speedup(gpus):.4g} times the examples/s of one)"
    try:
        lemma = scaling.gpus_for_speedup(wanted, ratio)
        lemma_text = f"{lemma} GPUs"
    except PlannerError as error:
        lemma, lemma_text = None, str(error)
    return Target(
        "speedup",
        wanted,
        gpus,
        search.speedup(best),
        lemma,
        f"Speedup {wanted:g}, each GPU with its batch, {way}: {gpus_text}. For one task that GPUs "
        f"divide, by the lemma with R_O = {ratio:.3g}: {lemma_text}.",
    )


def for_efficiency(search, wanted, way, ratio, most):
    """Answers how many GPUs keep an efficiency.

    Args:
        search: `Search`.
        wanted: float, above 0 and at most 1.
        way: str, what is simulated.
        ratio: float, R_O of the lemma.
        most: int, the GPUs for which the R_O is named that the lemma allows.

    Returns:
        `Target`.
    """
    gpus = search.most_for_efficiency(wanted)
    speedup = search.speedup(gpus)
    limit = " or more" if gpus >= MOST_GPUS else ""
    lemma = scaling.gpus_for_efficiency(wanted, ratio)
    lemma_text = "any number of GPUs" if lemma == math.inf else f"up to {lemma} GPUs"
    needed = scaling.ratio_for_efficiency(most, wanted)
    condition = "with any R_O" if needed == math.inf else f"with R_O up to {needed:.3g}"
    return Target(
        "efficiency",
        wanted,
        gpus,
        speedup,
        None if lemma == math.inf else lemma,
        f"Efficiency {wanted:g}, each GPU with its batch, {way}: up to {gpus} GPUs{limit} "
        f"({speedup:.4g} times the examples/s of one). For one task that GPUs divide, by the lemma "
        f"with R_O = {ratio:.3g}: {lemma_text}; {most} GPUs {condition}.",
    )
