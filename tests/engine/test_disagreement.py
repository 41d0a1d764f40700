"""What ranks are told of each other's arguments, and of ranks that have ended."""

import pytest
import scenarios
from scenarios import Scenario, Tensor

_IDLE_US = 2_500_000  # many times the second after which idle engines look


def _reductions(report, rank):
    return report["ranks"][rank]["reductions"]


def test_rank_that_goes_another_way_is_an_error(scenario_binary):
    """It never submits anything, and still the other learns why it waits."""
    scenario = Scenario(ranks=3, tensors=[Tensor("t0", [4])], submissions={(1, 0): []})
    scenario.extra_lines += ["announces 1", "arguments 0 a", "arguments 1 b", "arguments 2 a"]
    report = scenarios.run(scenario_binary, scenario)
    for rank in (0, 2):
        (reduction,) = _reductions(report, rank)
        assert reduction["status"] == "mismatch"
        expected = "ranks disagree about the arguments of 'group': a on ranks 0, 2; b on rank 1"
        assert expected in reduction["message"]


def test_group_without_tensors_is_compared_once(scenario_binary):
    """I6: then the engines are idle."""
    submissions = {(rank, 0): [] for rank in range(3)}
    scenario = Scenario(ranks=3, tensors=[Tensor("t0", [4])], submissions=submissions, idle_ms=300)
    scenario.extra_lines += [f"announces {rank}" for rank in range(3)]
    report = scenarios.run(scenario_binary, scenario)
    assert report["idle_rounds"] == 0
    assert report["idle_cpu_us"] < 3000


@pytest.mark.parametrize("delay_us", [0, _IDLE_US])
def test_rank_that_ends_first_is_named(scenario_binary, delay_us):
    """Also to a rank that is idle while the other gives up waiting for it."""
    submissions = {(0, 0): [(0, delay_us)], (1, 0): [], (2, 0): [(0, delay_us)]}
    scenario = Scenario(ranks=3, tensors=[Tensor("t0", [4])], submissions=submissions)
    scenario.extra_lines += ["shutdown 1 0", "shutdown_timeout_s 0.3", "stall_s 60 0"]
    report = scenarios.run(scenario_binary, scenario)
    for rank in (0, 2):
        (reduction,) = _reductions(report, rank)
        assert reduction["status"] == "shutdown"
        message = reduction["message"]
        assert message.startswith("tensor 't0' was not reduced: rank 1 has ended")
        assert "give all ranks the same number of steps" in message
