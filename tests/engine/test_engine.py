"""Invariants I1 to I7 of the engine (docs/architecture.md), on random scenarios.

Every scenario runs on 1 to 8 in-process ranks with random tensor sizes, types, priorities, orders
of readiness, delays of ranks and of collectives, slice sizes and credits.
"""

import copy

import pytest
import scenarios
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scenarios import Scenario, Tensor

_SETTINGS = settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking runs thousands of scenarios
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _starts(rank):
    return [event for event in rank["trace"] if event["kind"] == "started"]


def _slice(event):
    return event["priority"], event["tensor"], event["offset"]


def _tensor_number(event):
    return int(event["tensor"][1:])


def _assert_complete_and_correct(report):
    for rank in report["ranks"]:
        for reduction in rank["reductions"]:
            assert reduction["completions"] == 1, reduction
            assert reduction["status"] == "ok", reduction
            assert reduction["correct"], reduction
        assert rank["held_bytes"] == 0


@_SETTINGS
@given(scenario=scenarios.scenarios())
def test_all_invariants_hold(scenario_binary, scenario):
    report = scenarios.run(scenario_binary, scenario)
    # I4: each submission completes exactly once, with the right result.
    _assert_complete_and_correct(report)
    _assert_order_and_credit(report, scenario)


def _assert_order_and_credit(report, scenario):
    # I1: the same collectives in the same order on all ranks.
    first = [_slice(event) for event in _starts(report["ranks"][0])]
    for rank in report["ranks"]:
        assert [_slice(event) for event in _starts(rank)] == first
    for rank in report["ranks"]:
        _assert_most_urgent_first(rank["trace"])
        _assert_within_credit(rank["trace"], scenario.credit_bytes)


def _assert_most_urgent_first(trace):
    """I2: whenever a slice starts, no other globally ready slice is more urgent."""
    queued = []
    for event in trace:
        if event["kind"] == "queued":
            queued.append((event["priority"], _tensor_number(event), event["offset"]))
        elif event["kind"] == "started":
            key = (event["priority"], _tensor_number(event), event["offset"])
            assert key == min(queued)
            queued.remove(key)
    assert not queued


def _assert_within_credit(trace, credit):
    """I3: more than the credit is in flight only when that is a single slice."""
    for event in trace:
        if event["kind"] == "started":
            assert event["bytes_in_flight"] <= max(credit, event["bytes"])


@_SETTINGS
@given(scenario=scenarios.scenarios(), other_seed=st.integers(0, 1000))
def test_slices_do_not_depend_on_timing(scenario_binary, scenario, other_seed):
    """I7: other delays and ready orders give the same slices."""
    slowed = copy.copy(scenario)
    slowed.seed = other_seed
    slowed.most_slice_delay_us = 500
    slowed.submissions = {key: list(reversed(each)) for key, each in scenario.submissions.items()}
    slices = [
        sorted((*_slice(event), event["bytes"]) for event in _starts(report["ranks"][0]))
        for report in (
            scenarios.run(scenario_binary, scenario),
            scenarios.run(scenario_binary, slowed),
        )
    ]
    assert slices[0] == slices[1]


@_SETTINGS
@given(scenario=scenarios.scenarios(), data=st.data())
def test_shutdown_of_one_rank_leaves_nothing_pending(scenario_binary, scenario, data):
    """I5: what cannot complete any more ends with an error, on all ranks, exactly once. What the
    rank had submitted before is reduced."""
    rank = data.draw(st.integers(0, scenario.ranks - 1))
    step = data.draw(st.integers(0, scenario.steps - 1))
    scenario.extra_lines.append(f"shutdown {rank} {step}")
    report = scenarios.run(scenario_binary, scenario)
    _assert_only_these_fail(report, lambda reduction: reduction["step"] >= step)


def _assert_only_these_fail(report, fails):
    """These reductions end with the shutdown error, and all others with the right result."""
    for rank in report["ranks"]:
        for reduction in rank["reductions"]:
            assert reduction["completions"] == 1, reduction
            assert reduction["status"] == ("shutdown" if fails(reduction) else "ok"), reduction
            assert reduction["correct"] != fails(reduction), reduction
        assert rank["held_bytes"] == 0


@_SETTINGS
@given(scenario=scenarios.scenarios(), data=st.data())
def test_shutdown_of_all_ranks_completes_what_all_have_submitted(scenario_binary, scenario, data):
    """Ranks shut down right after their last submission; some never submit some tensors."""
    last = scenario.steps - 1
    numbers = st.integers(0, len(scenario.tensors) - 1)
    missing = data.draw(st.lists(st.tuples(st.integers(0, scenario.ranks - 1), numbers)))
    for rank, tensor in missing:
        scenario.submissions[rank, last] = [
            entry for entry in scenario.submissions[rank, last] if entry[0] != tensor
        ]
    lost = {tensor for _, tensor in missing}
    scenario.extra_lines.append("shutdown_at_end")
    report = scenarios.run(scenario_binary, scenario)
    _assert_only_these_fail(report, lambda each: each["step"] == last and each["tensor"] in lost)
    _assert_order_and_credit(report, scenario)


def test_ranks_that_shut_down_wait_for_the_submissions_of_late_ones(scenario_binary):
    """The last rank submits when the others have shut down already, and t1, which it never
    submits, shares a slice with t0."""
    tensors = [Tensor("t0", [10]), Tensor("t1", [10]), Tensor("t2", [3000], priority=1)]
    late = {(2, 0): [(2, 100_000), (0, 100_000)]}
    scenario = Scenario(ranks=3, tensors=tensors, submissions=late)
    scenario.extra_lines.append("shutdown_at_end")
    report = scenarios.run(scenario_binary, scenario)
    _assert_only_these_fail(report, lambda reduction: reduction["tensor"] == 1)
    starts = [(event["tensor"], event["bytes"]) for event in _starts(report["ranks"][0])]
    assert ("t0", 40) in starts


def test_shutdown_timeout_does_not_end_a_transfer(scenario_binary):
    scenario = Scenario(ranks=2, tensors=[Tensor("t0", [1500])], slice_bytes=4, credit_bytes=4)
    scenario.most_slice_delay_us = 2000
    scenario.extra_lines += ["shutdown_at_end", "shutdown_timeout_s 0.5"]  # of about 2 s
    _assert_complete_and_correct(scenarios.run(scenario_binary, scenario))


def test_ranks_that_wait_for_each_other_end_with_an_error(scenario_binary):
    """A rank has submitted what the other never does, and shuts down while the other waits."""
    tensors = [Tensor("t0", [10]), Tensor("t1", [10])]
    submissions = {(0, 0): [(0, 0)], (1, 0): [(1, 0)], (0, 1): [], (1, 1): [(1, 0)]}
    scenario = Scenario(ranks=2, tensors=tensors, steps=2, submissions=submissions)
    scenario.extra_lines += ["shutdown 0 1", "shutdown_timeout_s 0.2"]
    report = scenarios.run(scenario_binary, scenario)
    _assert_only_these_fail(report, lambda reduction: True)


@settings(parent=_SETTINGS, max_examples=20)  # ranks that see no error wait for one to leave
@given(scenario=scenarios.scenarios(), data=st.data())
def test_failed_collective_leaves_nothing_pending(scenario_binary, scenario, data):
    """I5: after a transport error nothing stays pending on the rank that saw it."""
    rank = data.draw(st.integers(0, scenario.ranks - 1))
    sequence = data.draw(st.integers(0, 10))
    scenario.extra_lines += [f"fail {sequence} {rank}", "shutdown_timeout_s 0.1"]
    report = scenarios.run(scenario_binary, scenario)
    for each in report["ranks"]:
        for reduction in each["reductions"]:
            assert reduction["completions"] == 1
            assert reduction["status"] in ("ok", "shutdown", "transport")
            assert reduction["correct"] or reduction["status"] != "ok"


def test_failure_names_its_cause(scenario_binary):
    scenario = Scenario(ranks=2, tensors=[Tensor("t0", [10])], extra_lines=["fail 0 1"])
    report = scenarios.run(scenario_binary, scenario)
    (reduction,) = report["ranks"][1]["reductions"]
    assert reduction["status"] == "transport"
    assert "injected failure" in reduction["message"]


@pytest.mark.parametrize("ranks", [1, 4])
def test_idle_engine_uses_no_cpu_and_no_network(scenario_binary, ranks):
    """I6. 300 ms of idling may cost the clock's own microseconds, not a poll every millisecond."""
    tensors = [Tensor(f"t{index}", [100], priority=index) for index in range(3)]
    scenario = Scenario(ranks=ranks, tensors=tensors, steps=2, idle_ms=300)
    report = scenarios.run(scenario_binary, scenario)
    _assert_complete_and_correct(report)
    assert report["idle_rounds"] == 0
    assert report["idle_cpu_us"] < 3000


def test_ranks_with_other_shapes_get_an_error_that_names_tensor_and_ranks(scenario_binary):
    tensors = [Tensor("t0", [4]), Tensor("t1", [2, 3])]
    scenario = Scenario(ranks=3, tensors=tensors, extra_lines=["shape 1 1 3 2"])
    report = scenarios.run(scenario_binary, scenario)
    for rank in report["ranks"]:
        for reduction in rank["reductions"]:
            assert reduction["completions"] == 1
            assert reduction["status"] == "mismatch"
            assert "tensor 't1'" in reduction["message"]
            assert "float32[2,3], sum on ranks 0, 2" in reduction["message"]
            assert "float32[3,2], sum on rank 1" in reduction["message"]


def test_small_tensors_of_one_priority_share_a_slice(scenario_binary):
    tensors = [
        Tensor("t0", [10]),
        Tensor("t1", [10]),
        Tensor("t2", [10], priority=1),
        Tensor("t3", [10], dtype="int32"),
        Tensor("t4", [1000]),
    ]
    scenario = Scenario(ranks=2, tensors=tensors, slice_bytes=100)
    report = scenarios.run(scenario_binary, scenario)
    starts = [(event["tensor"], event["bytes"]) for event in _starts(report["ranks"][0])]
    assert ("t0", 80) in starts  # with t1
    assert ("t2", 40) in starts  # another priority
    assert ("t3", 40) in starts  # another dtype
    pieces = [size for tensor, size in starts if tensor == "t4"]
    assert sum(pieces) == 4000
    assert max(pieces) <= 100


def test_urgent_tensor_overtakes_a_large_one(scenario_binary):
    """The urgent tensor becomes ready while the large one is on the wire, and waits for at most
    the credit."""
    # On a busy machine a rank may begin later than the head start of the large tensor, and both are
    # ready at once; then there is nothing to overtake, and the head start must be longer.
    for head_start_us in (3_000, 30_000, 300_000):
        large = Tensor("t1", [4 * head_start_us], priority=1)  # takes many times the head start
        late = {(rank, 0): [(1, 0), (0, head_start_us)] for rank in range(2)}
        scenario = Scenario(
            ranks=2,
            tensors=[Tensor("t0", [10]), large],
            slice_bytes=400,
            credit_bytes=400,
            submissions=late,
        )
        scenario.most_slice_delay_us = 1000
        report = scenarios.run(scenario_binary, scenario)
        _assert_complete_and_correct(report)
        order = [event["tensor"] for event in _starts(report["ranks"][0])]
        if order.index("t0") > 0:
            break
    assert 0 < order.index("t0") < len(order) - 1
