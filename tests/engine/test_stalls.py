"""What the engine says, and does, about a tensor that only some ranks submit."""

import scenarios
from scenarios import Scenario, Tensor

_LATE_US = (
    2_500_000  # many times the warning's time, and the second after which idle engines answer
)


def _statuses(report):
    return [[each["status"] for each in rank["reductions"]] for rank in report["ranks"]]


def test_warning_names_tensor_and_missing_rank_once(scenario_binary):
    tensors = [Tensor("kernel", [10]), Tensor("bias", [3])]
    late = {(2, 0): [(0, _LATE_US), (1, 0)]}
    scenario = Scenario(ranks=4, tensors=tensors, submissions=late, extra_lines=["stall_s 0.2 0"])
    report = scenarios.run(scenario_binary, scenario)
    (warning,) = report["warnings"]
    assert "Missing: rank 2, where it is not submitted" in warning
    assert "'kernel'" in warning and "'group'" in warning and "1 other" in warning
    assert "HVD_P3_STALL_TIMEOUT_S" in warning
    assert _statuses(report) == [["ok", "ok"]] * 4


def test_ranks_that_wait_for_different_tensors_learn_of_each_other(scenario_binary):
    tensors = [Tensor("t0", [10]), Tensor("t1", [10])]
    submissions = {(0, 0): [(0, 0), (1, _LATE_US)], (1, 0): [(1, 0), (0, _LATE_US)]}
    scenario = Scenario(
        ranks=2, tensors=tensors, submissions=submissions, extra_lines=["stall_s 0.2 0"]
    )
    report = scenarios.run(scenario_binary, scenario)
    for mine, other in (("t0", "t1"), ("t1", "t0")):
        expected = f"where it is not submitted and tensor '{other}' waits"
        assert any(f"'{mine}'" in each and expected in each for each in report["warnings"])
    assert _statuses(report) == [["ok", "ok"]] * 2


def test_timeout_is_an_error_on_all_ranks(scenario_binary):
    """Also on the rank that misses the tensor, at its next submission."""
    tensors = [Tensor("t0", [10]), Tensor("t1", [10])]
    submissions = {(2, 0): [(1, 2 * _LATE_US)]}
    scenario = Scenario(
        ranks=3, tensors=tensors, submissions=submissions, extra_lines=["stall_s 0 0.3"]
    )
    report = scenarios.run(scenario_binary, scenario)
    assert _statuses(report) == [["stalled", "stalled"], ["stalled", "stalled"], ["stalled"]]
    messages = {each["message"] for rank in report["ranks"] for each in rank["reductions"]}
    for message in messages:
        assert "tensor 't0'" in message or "tensor 't1'" in message
        assert "Missing: rank 2" in message and "after 0.3 s" in message
    assert report["warnings"] == []


def test_work_that_goes_on_is_no_stall(scenario_binary):
    """Slices that take longer than the warning in all, but not each, are the network's pace."""
    scenario = Scenario(ranks=2, tensors=[Tensor("t0", [1500])], slice_bytes=4, credit_bytes=4)
    scenario.most_slice_delay_us = 2000
    scenario.extra_lines.append("stall_s 0.3 0.5")
    report = scenarios.run(scenario_binary, scenario)
    assert report["warnings"] == []
    assert _statuses(report) == [["ok"], ["ok"]]
