"""What engines record for a timeline, on random scenarios."""

import collections

import pytest
import scenarios
from hypothesis import HealthCheck, Phase, given, settings
from scenarios import Scenario, Tensor

_SETTINGS = settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _slices(timeline):
    """dict of slice number to its events."""
    slices = collections.defaultdict(list)
    for event in timeline:
        if event["slice"] >= 0:
            slices[event["slice"]].append(event)
    return slices


def _by_kind(events):
    kinds = collections.defaultdict(list)
    for event in events:
        kinds[event["kind"]].append(event)
    return kinds


@_SETTINGS
@given(scenario=scenarios.scenarios())
def test_timeline_has_all_phases_in_order(scenario_binary, scenario):
    scenario.extra_lines.append("timeline 0 -1")
    report = scenarios.run(scenario_binary, scenario)
    numbers = []
    for rank in report["ranks"]:
        timeline = rank["timeline"]
        assert rank["timeline_dropped"] == 0
        times = [event["time_ns"] for event in timeline]
        assert times == sorted(times)
        slices = _slices(timeline)
        numbers.append({number: events[0]["tensor"] for number, events in slices.items()})
        spans = collections.defaultdict(list)  # tensor -> started and finished of its slices
        for events in slices.values():
            kinds = [event["kind"] for event in events]
            assert kinds == ["started", *["member"] * (len(kinds) - 2), "finished"]
            assert events[-1]["bytes"] == events[0]["bytes"]
            for event in events[:-1]:
                spans[event["tensor"]].append((events[0]["time_ns"], events[-1]["time_ns"]))
        for tensor in range(len(scenario.tensors)):
            kinds = _by_kind(event for event in timeline if event["tensor"] == tensor)
            for kind in ("submitted", "negotiated", "completed"):
                assert len(kinds[kind]) == scenario.steps
            for step in range(scenario.steps):
                submitted, negotiated, completed = (
                    kinds[kind][step]["time_ns"]
                    for kind in ("submitted", "negotiated", "completed")
                )
                assert submitted <= negotiated <= completed
                within = [span for span in spans[tensor] if submitted <= span[0] <= completed]
                assert within
                assert negotiated <= min(span[0] for span in within)
                assert max(span[1] for span in within) <= completed
    assert all(other == numbers[0] for other in numbers)  # slices have the same numbers


def test_timeline_is_off_by_default_and_records_only_while_it_is_on(scenario_binary):
    tensors = [Tensor("t0", [10])]
    off = scenarios.run(scenario_binary, Scenario(ranks=2, tensors=tensors, steps=3))
    assert [rank["timeline"] for rank in off["ranks"]] == [[], []]
    scenario = Scenario(ranks=2, tensors=tensors, steps=4, extra_lines=["timeline 1 3"])
    report = scenarios.run(scenario_binary, scenario)
    for rank in report["ranks"]:
        kinds = _by_kind(rank["timeline"])
        # The engine may admit what was submitted just before a switch just after it.
        assert 1 <= len(kinds["submitted"]) <= 3
        assert len(_by_kind(rank["trace"])["submitted"]) == 4  # not affected


@pytest.mark.parametrize("capacity", [0, 7])
def test_full_timeline_keeps_the_first_events_and_counts_the_others(scenario_binary, capacity):
    tensors = [Tensor("t0", [10]), Tensor("t1", [10], priority=1)]
    lines = ["timeline 0 -1", f"timeline_capacity {capacity}"]
    scenario = Scenario(ranks=2, tensors=tensors, steps=3, extra_lines=lines)
    for rank in scenarios.run(scenario_binary, scenario)["ranks"]:
        assert len(rank["timeline"]) == capacity
        # In each of three steps: submitted, negotiated and completed for each of two tensors; and
        # queued, started, member and finished for the slice that they share.
        assert rank["timeline_dropped"] == 3 * (2 * 3 + 4) - capacity
        assert all(event["kind"] == "submitted" for event in rank["timeline"][:1])
