"""Tensors in the memory of a (simulated) device, beside those in host memory.

The invariants are tested with devices in test_engine.py; here is what exists on devices alone.
"""

import pytest
import scenarios
from scenarios import Scenario, Tensor


def _reductions(report):
    return [reduction for rank in report["ranks"] for reduction in rank["reductions"]]


def _assert_correct(report):
    for reduction in _reductions(report):
        assert reduction["status"] == "ok", reduction
        assert reduction["correct"], reduction


@pytest.mark.parametrize("ranks", [1, 3])
def test_results_can_be_used_and_tensors_submitted_again_before_they_are_complete(
    scenario_binary, ranks
):
    tensors = [Tensor("t0", [100]), Tensor("t1", [40], priority=1)]
    scenario = Scenario(
        ranks=ranks, tensors=tensors, steps=4, slice_bytes=100, on_device={0}, seed=5
    )
    scenario.most_slice_delay_us = 3000
    report = scenarios.run(scenario_binary, scenario)
    _assert_correct(report)
    for reduction in _reductions(report):
        assert reduction["enqueued"] == (reduction["tensor"] == 0)
    assert any(reduction["overlaps_previous"] for reduction in _reductions(report))


def test_slice_with_members_on_host_and_device(scenario_binary):
    tensors = [Tensor(f"t{index}", [10]) for index in range(3)]
    scenario = Scenario(ranks=3, tensors=tensors, steps=2, on_device={1})
    report = scenarios.run(scenario_binary, scenario)
    _assert_correct(report)
    for rank in report["ranks"]:
        assert rank["slices"] == 2  # one a step


def test_tensor_on_the_device_of_some_ranks_is_an_error_on_all(scenario_binary):
    scenario = Scenario(ranks=3, tensors=[Tensor("t0", [10]), Tensor("t1", [10], priority=1)])
    scenario.extra_lines += ["device 0 0 1", "device 1 0", "device 2 0 1"]
    report = scenarios.run(scenario_binary, scenario)
    for number, rank in enumerate(report["ranks"]):
        here, there = ("host", "device") if number == 1 else ("device", "host")
        messages = [each["message"] for each in rank["reductions"] if each["status"] == "mismatch"]
        assert messages
        for message in messages:
            expected = f"tensor 't1' is in {here} memory on rank {number} and in {there} memory on"
            assert message.startswith(expected)


def test_tensor_on_a_device_without_a_transport_for_it_is_an_error(scenario_binary):
    scenario = Scenario(ranks=2, tensors=[Tensor("t0", [10])], on_device={0})
    scenario.extra_lines.append("host_transport_only")
    for reduction in _reductions(scenarios.run(scenario_binary, scenario)):
        assert reduction["status"] == "invalid_argument"
        assert "tensor 't0' is in device memory" in reduction["message"]
        assert "HVD_P3_WITH_CUDA=1" in reduction["message"]


def test_two_devices_of_one_rank_are_an_error(scenario_binary):
    scenario = Scenario(ranks=2, tensors=[Tensor("t0", [10]), Tensor("t1", [10], priority=1)])
    scenario.on_device = {0, 1}
    scenario.extra_lines.append("device_index 1 3")
    failed = [
        each
        for each in _reductions(scenarios.run(scenario_binary, scenario))
        if not each["correct"]
    ]
    assert failed
    for reduction in failed:
        assert "tensors on the devices 0 and 3" in reduction["message"]


def test_error_of_the_device_library_fails_what_it_had_enqueued(scenario_binary):
    """The error comes when the reduction was handed over already: `done` still reports it."""
    scenario = Scenario(ranks=1, tensors=[Tensor("t0", [100])], slice_bytes=100, on_device={0})
    scenario.most_slice_delay_us = 2000
    scenario.extra_lines.append("fail 3 0")
    (reduction,) = _reductions(scenarios.run(scenario_binary, scenario))
    assert reduction["enqueued"]
    assert reduction["completions"] == 1
    assert reduction["status"] == "transport"
    assert "injected failure of collective 3" in reduction["message"]
