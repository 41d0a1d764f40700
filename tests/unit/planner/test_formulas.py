"""The formulas of Zou et al. (2017), with values worked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_p3_tools.planner import hiding, scaling
from hvd_p3_tools.planner.errors import PlannerError

_ratios = st.floats(0, 10)
_gpus = st.integers(1, 10_000)


def test_efficiency_and_speedup():
    assert scaling.overhead_ratio(0.2, 2.0) == pytest.approx(0.1)
    # R_O = 0.1: 1.1 / (1 + 0.4) = 0.785714 on 4 GPUs, which are 3.142857 times as fast.
    assert scaling.efficiency(4, 0.1) == pytest.approx(0.7857142857)
    assert scaling.speedup(4, 0.1) == pytest.approx(3.1428571429)
    assert scaling.speedup(1, 0.1) == 1.0
    assert scaling.speedup(16, 0.0) == 16.0


def test_gpus_for_a_target():
    # 3 / (1 + 0.1 - 0.3) = 3.75, so 4 GPUs.
    assert scaling.gpus_for_speedup(3, 0.1) == 4
    # Exactly: 4 GPUs with R_O = 0.1 are 4.4 / 1.4 times as fast.
    assert scaling.gpus_for_speedup(4.4 / 1.4, 0.1) == 4
    # (1 + 0.1 - 0.8) / (0.8 * 0.1) = 3.75, so 3 GPUs.
    assert scaling.gpus_for_efficiency(0.8, 0.1) == 3
    assert scaling.gpus_for_efficiency(1.1 / 1.4, 0.1) == 4
    assert scaling.gpus_for_efficiency(0.8, 0.0) == math.inf
    # (1 - 0.8) / (0.8 * 4 - 1) = 0.2 / 2.2.
    assert scaling.ratio_for_efficiency(4, 0.8) == pytest.approx(0.0909090909)
    assert scaling.ratio_for_efficiency(4, 0.25) == math.inf


def test_speedups_out_of_reach():
    # Less than 1.1 / 0.1 = 11, however many GPUs.
    with pytest.raises(PlannerError, match=r"a speedup of 11: .* stays below 11;"):
        scaling.gpus_for_speedup(11, 0.1)
    for target in (0, 1.5, math.nan):
        with pytest.raises(PlannerError, match="an efficiency must be"):
            scaling.gpus_for_efficiency(target, 0.1)
    with pytest.raises(PlannerError, match="a speedup must be at least 1"):
        scaling.gpus_for_speedup(0.5, 0.1)
    with pytest.raises(PlannerError, match="computation must be above 0"):
        scaling.overhead_ratio(1.0, 0.0)


@given(_gpus, _ratios)
def test_speedup_is_never_above_the_gpus(gpus, ratio):
    assert 0 < scaling.efficiency(gpus, ratio) <= 1
    assert scaling.speedup(gpus, ratio) <= gpus
    assert scaling.speedup(gpus + 1, ratio) >= scaling.speedup(gpus, ratio) * (1 - 1e-12)


@given(st.integers(2, 10_000), st.floats(1e-3, 10))
def test_inverses(gpus, ratio):
    alpha = scaling.efficiency(gpus, ratio)
    assert scaling.ratio_for_efficiency(gpus, alpha) == pytest.approx(ratio, rel=1e-6)
    found = scaling.gpus_for_efficiency(alpha, ratio)
    assert abs(found - gpus) <= 1e-6 * gpus + (found != gpus)
    enough = scaling.gpus_for_speedup(0.9 * scaling.speedup(gpus, ratio) + 0.1, ratio)
    assert scaling.speedup(enough, ratio) >= 0.9 * scaling.speedup(gpus, ratio) * (1 - 1e-6)


def test_parameter_servers_of_alexnet():
    # 180 MB on 1 Gbit/s = 125 MB/s: a worker's gradients and weights take 2 * 180 / 125 = 2.88 s.
    # One worker that computes for 1 s: 2.88, so 3 servers; 8 of them: 23.04, so 24.
    assert hiding.least_servers(180e6, 1, 125e6, 1.0) == 3
    assert hiding.least_servers(180e6, 8, 125e6, 1.0) == 24
    # Computing for 2.88 s, each worker keeps one server busy: exactly 8, and not 9 by rounding.
    assert hiding.least_servers(180e6, 8, 125e6, 2.88) == 8
    assert hiding.least_servers(180e6, 8, 1.25e9, 10.0) == 1


def test_all_reduce_of_alexnet():
    # 4 ranks: 1.5 * 180 MB in 1 s take 270 MB/s.
    assert hiding.bandwidth_for_all_reduce(180e6, 4, 1.0) == pytest.approx(270e6)
    # On 270 MB/s, 360 / (360 - 270) = 4 ranks are the most; on 360 MB/s any number is hidden.
    assert hiding.ranks_for_all_reduce(180e6, 270e6, 1.0) == 4
    assert hiding.ranks_for_all_reduce(180e6, 360e6, 1.0) == math.inf
    assert hiding.ranks_for_all_reduce(180e6, 125e6, 1.0) == 1


@given(st.floats(1, 1e10), st.integers(1, 1000), st.floats(1e6, 1e11), st.floats(1e-3, 10))
def test_least_servers_hide_and_fewer_do_not(size, workers, bandwidth, compute_s):
    servers = hiding.least_servers(size, workers, bandwidth, compute_s)
    moved_s = 2 * size * workers / bandwidth
    assert moved_s / servers <= compute_s * (1 + 1e-6)
    assert servers == 1 or moved_s / (servers - 1) > compute_s


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.inf, math.nan])
def test_bandwidths_that_make_no_sense(bandwidth):
    with pytest.raises(PlannerError, match="the bandwidth must be"):
        hiding.least_servers(1e6, 2, bandwidth, 1.0)
