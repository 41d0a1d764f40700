"""Settings: arguments, environment variables, defaults, refusals, and their documentation."""

import dataclasses
import re
from pathlib import Path

import pytest

from hvd_p3 import configuration

_ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for field in dataclasses.fields(configuration.Configuration):
        monkeypatch.delenv(configuration.environment_variable(field.name), raising=False)


def test_defaults():
    config = configuration.load({})
    assert config.slice_bytes == 120 * 1024
    assert config.credit_bytes == 768 * 1024
    assert config.overlap is True
    assert config.trace is False


def test_environment_sets_and_argument_wins(monkeypatch):
    monkeypatch.setenv("HVD_P3_SLICE_BYTES", "1000")
    monkeypatch.setenv("HVD_P3_OVERLAP", "0")
    monkeypatch.setenv("HVD_P3_SHUTDOWN_TIMEOUT_S", "1.5")
    config = configuration.load({"slice_bytes": 2000, "credit_bytes": None})
    assert config.slice_bytes == 2000
    assert config.overlap is False
    assert config.shutdown_timeout_s == 1.5


@pytest.mark.parametrize("text", ["0", "-1", "abc", "", "1.5", "99999999999"])
def test_slice_bytes_refuses_what_makes_no_sense(monkeypatch, text):
    monkeypatch.setenv("HVD_P3_SLICE_BYTES", text)
    with pytest.raises(ValueError, match=r"HVD_P3_SLICE_BYTES must be an integer from 1") as error:
        configuration.load({})
    assert f"Received: {text!r}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slice_bytes", 0),
        ("slice_bytes", "8"),
        ("slice_bytes", True),
        ("credit_bytes", -5),
        ("overlap", 1),
        ("trace", "yes"),
        ("shutdown_timeout_s", -0.1),
    ],
)
def test_arguments_refuse_what_makes_no_sense(name, value):
    with pytest.raises(ValueError, match=f"{name} must be") as error:
        configuration.load({name: value})
    assert f"Received: {value!r}" in str(error.value)


@pytest.mark.parametrize("text", ["2", "maybe"])
def test_boolean_variable_refuses_other_words(monkeypatch, text):
    monkeypatch.setenv("HVD_P3_TRACE", text)
    with pytest.raises(ValueError, match="HVD_P3_TRACE must be a boolean"):
        configuration.load({})


def test_unknown_argument_is_named_with_a_suggestion():
    with pytest.raises(TypeError, match=r"'slice_size' \(did you mean slice_bytes\?\)"):
        configuration.load({"slice_size": 1})


def test_unknown_variable_is_warned_about(monkeypatch):
    monkeypatch.setenv("HVD_P3_SLICE_BITES", "1")
    with pytest.warns(UserWarning, match=r"HVD_P3_SLICE_BITES .*did you mean HVD_P3_SLICE_BYTES"):
        configuration.load({})


def test_documentation_lists_each_setting_with_its_default():
    rows = [
        [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        for line in (_ROOT / "docs" / "settings.md").read_text().splitlines()
        if line.startswith("|")
    ]
    documented = {row[0]: (row[1], row[2]) for row in rows if len(row) >= 3}
    for field in dataclasses.fields(configuration.Configuration):
        variable = configuration.environment_variable(field.name)
        assert documented.get(field.name) == (variable, str(field.default)), field.name


def test_every_variable_in_the_documentation_exists():
    known = {
        configuration.environment_variable(field.name)
        for field in dataclasses.fields(configuration.Configuration)
    } | configuration._OUTSIDE_VARIABLES
    build = (_ROOT / "CMakeLists.txt").read_text()
    for page in [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]:
        for variable in re.findall(r"HVD_P3_[A-Z_]+[A-Z]", page.read_text()):
            assert variable in known or variable in build, f"{variable} in {page}"
