"""How many GPUs reach a speedup, or keep an efficiency, against all numbers."""

import planner_models as models
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_p3_tools.planner import plan, targets
from hvd_p3_tools.planner.device import Device
from hvd_p3_tools.planner.simulation.cluster import Settings
from hvd_p3_tools.planner.simulation.simulator import simulate

# Each GPU more costs latency: 1 ms a message, with 0.3 s of computation.
_PROFILE = models.profile((0.1, 0.2, 60_000), activation_bytes=1000)


def _cluster(all_reduce):
    return models.cluster(bandwidth=1e7, latency_s=1e-3, all_reduce=all_reduce)


def _search(all_reduce, scheme="p3"):
    return targets.Search(_PROFILE, _cluster(all_reduce), scheme, Settings())


@pytest.mark.parametrize("all_reduce", ["mpi", "tree", "ring"])
@pytest.mark.parametrize("wanted", [1.0, 1.5, 2.0, 6.5, 16.0, 40.0])
def test_the_least_gpus_for_a_speedup(all_reduce, wanted):
    search = _search(all_reduce)
    reach = [gpus for gpus in range(1, 130) if search.speedup(gpus) >= wanted]
    assert search.least_for_speedup(wanted) == reach[0]


@pytest.mark.parametrize("all_reduce", ["mpi", "ring"])
@pytest.mark.parametrize("wanted", [0.95, 0.8, 0.5])
def test_the_most_gpus_for_an_efficiency(all_reduce, wanted):
    search = _search(all_reduce)
    keep = [gpus for gpus in range(1, 1025) if search.speedup(gpus) >= wanted * gpus]
    # With a ring, 1024 GPUs take 2 s for the latency of an all-reduce.
    most = search.most_for_efficiency(wanted)
    if most < 1024:
        assert most == max(keep)
    else:
        assert all_reduce == "mpi"
        assert search.speedup(most) >= wanted * most


def test_speedups_are_those_of_the_table():
    made = plan.make(_PROFILE, _cluster("mpi"), Device(), [4, 6], speedup=3.5, efficiency=0.9)
    search = targets.Search(_PROFILE, made.cluster, made.scheme, made.settings)
    for each in made.scalings:
        if each.scheme == made.scheme:
            assert search.speedup(each.gpus) == pytest.approx(each.throughput_ratio)
    speedup, efficiency = made.targets
    assert (speedup.name, speedup.gpus) == ("speedup", search.least_for_speedup(3.5))
    assert speedup.speedup >= 3.5
    assert f"{speedup.gpus} GPUs" in speedup.text
    assert efficiency.gpus == search.most_for_efficiency(0.9)
    assert "For one task that GPUs divide, by the lemma" in efficiency.text


def test_out_of_reach():
    # 4096 ranks in a ring wait for 8190 messages of 1 ms.
    search = _search("ring")
    assert search.least_for_speedup(2000.0) is None
    answer = targets.for_speedup(search, 2000.0, "simulated", ratio=0.5)
    assert answer.gpus is None
    assert "no number of GPUs up to 4096 was found to reach it" in answer.text
    # The lemma: less than 1.5 / 0.5 = 3.
    assert "stays below 3;" in answer.text
    assert answer.lemma_gpus is None


@given(models.profiles, st.integers(2, 200), models.bandwidths, st.sampled_from(plan.SCHEMES))
def test_speedups_are_never_above_the_gpus(profile, gpus, bandwidth, scheme):
    cluster = models.cluster(gpus, bandwidth, latency_s=1e-5)
    search = targets.Search(profile, cluster, scheme, Settings())
    assert 0 < search.speedup(gpus) <= gpus * (1 + 1e-9)
    alone = simulate(profile, models.cluster(1, bandwidth), "p3")
    assert alone.step_s == pytest.approx(profile.compute_s)
