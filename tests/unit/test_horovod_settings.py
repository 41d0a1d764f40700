"""What becomes of Horovod's environment variables."""

import types
import warnings
from pathlib import Path

import pytest

from hvd_p3 import configuration, horovod_settings

_DOCUMENTATION = Path(__file__).parents[2] / "docs" / "migrating.md"
_NO_STALL_CHECK = "HOROVOD_STALL_CHECK_DISABLE"
_WARNING = "HOROVOD_STALL_CHECK_TIME_SECONDS"
_TIMEOUT = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"


@pytest.fixture
def environment(monkeypatch):
    """The environment as Horovod's variables are looked up in it, without any of the ranks'."""
    variables = {}
    monkeypatch.setattr(horovod_settings, "os", types.SimpleNamespace(environ=variables))
    for setting in ("STALL_WARNING_S", "STALL_TIMEOUT_S"):
        monkeypatch.delenv(f"HVD_P3_{setting}", raising=False)
    return variables


@pytest.mark.parametrize(
    ("variables", "warning", "timeout"),
    [
        ({}, 60.0, 0.0),
        ({_WARNING: "5", _TIMEOUT: "30"}, 5.0, 30.0),
        ({_NO_STALL_CHECK: "0", _TIMEOUT: "30"}, 60.0, 30.0),
        ({_NO_STALL_CHECK: "1", _TIMEOUT: "30"}, 0.0, 0.0),
    ],
)
def test_limits_of_stalls_are_taken_over(environment, variables, warning, timeout):
    environment.update(variables)
    config = configuration.load({})
    assert (config.stall_warning_s, config.stall_timeout_s) == (warning, timeout)


def test_own_variable_and_argument_win(environment, monkeypatch):
    environment.update({_WARNING: "5", _TIMEOUT: "30"})
    monkeypatch.setenv("HVD_P3_STALL_WARNING_S", "7")
    config = configuration.load({"stall_timeout_s": 9.0})
    assert (config.stall_warning_s, config.stall_timeout_s) == (7.0, 9.0)


def test_value_that_makes_no_sense_is_refused_by_its_name(environment):
    environment[_TIMEOUT] = "soon"
    with pytest.raises(ValueError, match=f"{_TIMEOUT} must be a number .*'soon'"):
        configuration.load({})


@pytest.mark.parametrize(
    ("warning", "timeout", "variables"),
    [
        (60.0, 0.0, {_WARNING: "60"}),
        (60.0, 600.0, {_WARNING: "60", _TIMEOUT: "600"}),
        # Horovod looks as often as it warns.
        (60.0, 10.0, {_WARNING: "3", _TIMEOUT: "10"}),
        (0.0, 0.5, {_WARNING: "1", _TIMEOUT: "1"}),
        (0.0, 0.0, {_NO_STALL_CHECK: "1"}),
    ],
)
def test_limits_of_stalls_are_passed_on(environment, warning, timeout, variables):
    config = configuration.Configuration(stall_warning_s=warning, stall_timeout_s=timeout)
    horovod_settings.pass_on(config)
    assert environment == variables


def test_what_the_user_has_set_stays(environment):
    environment[_TIMEOUT] = "30"
    horovod_settings.pass_on(configuration.Configuration(stall_timeout_s=60.0))
    assert environment == {_WARNING: "15", _TIMEOUT: "30"}


def test_those_without_effect_are_named_once(environment):
    environment.update({"HOROVOD_AUTOTUNE": "1", "HOROVOD_CYCLE_TIME": "0", _TIMEOUT: "30"})
    with pytest.warns(UserWarning, match="HOROVOD_AUTOTUNE: use HVD_P3_AUTOTUNE") as caught:
        horovod_settings.warn_of_those_without_effect()
    (warning,) = caught
    assert "HOROVOD_CYCLE_TIME" not in str(warning.message)
    environment.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        horovod_settings.warn_of_those_without_effect()


def test_all_are_documented():
    text = _DOCUMENTATION.read_text()
    for variable in (_NO_STALL_CHECK, _WARNING, _TIMEOUT, *horovod_settings._WITHOUT_EFFECT):
        assert f"`{variable}`" in text
