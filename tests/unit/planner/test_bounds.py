"""The lower bounds with which results are compared."""

import pytest

from hvd_p3_tools.planner import bounds


def test_all_reduce_keeps_each_link_busy_for_twice_its_share():
    assert bounds.communication_s(100e6, hosts=4, bandwidth=125e6) == pytest.approx(1.2)
    assert bounds.communication_s(100e6, hosts=2, bandwidth=125e6) == pytest.approx(0.8)


def test_communication_that_can_be_hidden_costs_nothing():
    # The first layer has hardly any gradients: all is sent behind computation.
    layers = [(0.001, 0.1, 0.2), (0.2, 0.1, 0.2)]
    assert bounds.scheduled_step_s(layers) == pytest.approx(0.6, abs=0.002)


def test_first_layer_cannot_be_hidden():
    # All gradients are ready when the backward pass ends, and needed before the forward pass.
    assert bounds.scheduled_step_s([(0.5, 0.1, 0.2)]) == pytest.approx(0.8)


def test_slow_network_is_never_idle():
    layers = [(0.1, 0.01, 0.02)] * 10
    assert bounds.scheduled_step_s(layers) == pytest.approx(1.0, rel=0.05)
