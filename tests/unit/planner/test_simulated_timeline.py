"""Timelines of simulations: in the format of real runs, and consistent."""

import itertools

import planner_models as models
import pytest
from hypothesis import given, settings

from hvd_p3_tools.planner import builtin
from hvd_p3_tools.planner.network import Network
from hvd_p3_tools.planner.simulation.cluster import Cluster
from hvd_p3_tools.planner.simulation.simulator import SCHEMES, simulate
from hvd_p3_tools.timeline import chrome_trace, summary, waits
from hvd_p3_tools.timeline.model import PHASES


@pytest.mark.parametrize("scheme", SCHEMES)
def test_file_says_what_the_simulation_says(scheme, tmp_path):
    profile = builtin.load("alexnet")
    cluster = Cluster(4, Network(1.25e9), stragglers=1, straggler_factor=1.5)
    result = simulate(profile, cluster, scheme, record=True)
    path = tmp_path / "timeline.json"
    with path.open("w") as file:
        chrome_trace.write(result.timeline, file)
    read = chrome_trace.read(path)
    assert read == result.timeline
    assert [rank.number for rank in read.ranks] == [0, 3]
    assert read.settings["scheme"] == scheme
    if scheme != "shadow":
        assert [summary.summarize(rank).steps for rank in read.ranks] == [3, 3]
        *_, before, last = summary.step_starts(read.ranks[-1])  # of the straggler
        assert (last - before) / 1e9 == pytest.approx(result.step_s, rel=1e-6)
        assert waits.Explainer(read).worst(3)
    assert simulate(profile, cluster, scheme).step_s == pytest.approx(result.step_s)


@given(
    models.profiles,
    models.ranks,
    models.bandwidths,
    models.settings,
    models.st.sampled_from(sorted(set(SCHEMES) - {"shadow"})),
)
@settings(max_examples=50)
def test_events_are_in_order(profile, ranks, bandwidth, given_settings, scheme):
    cluster = models.cluster(ranks, bandwidth, latency_s=1e-5)
    result = simulate(profile, cluster, scheme, given_settings, record=True)
    (rank,) = result.timeline.ranks
    sent = {each.number: each for each in rank.slices}
    for reduction in rank.reductions:
        times = [getattr(reduction, phase) for phase in PHASES]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
        # What is applied was reduced, and all of its bytes were sent.
        if reduction.applied is not None:
            assert None not in times
            own = [sent[number] for number in reduction.slices]
            assert min(each.start for each in own) == reduction.started
            assert max(each.end for each in own) == reduction.finished
            assert sum(each.bytes for each in own) >= reduction.bytes
    for earlier, later in itertools.pairwise(rank.waits):
        assert earlier.end <= later.start
    most = max((each.bytes for each in rank.slices), default=0)
    if scheme != "fifo":
        most = max(most, given_settings.credit_bytes)
    for _, in_flight in rank.bytes_in_flight:
        assert 0 <= in_flight <= most
    # No variable is read before its update of the step before.
    by_tensor = {}
    for reduction in rank.reductions:
        before = by_tensor.get(reduction.tensor)
        assert before is None or before.applied <= reduction.ready
        by_tensor[reduction.tensor] = reduction
