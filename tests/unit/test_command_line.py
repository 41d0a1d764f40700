"""The command `hvd-p3`, and its errors."""

import subprocess
import sys
from pathlib import Path

import pytest
import timelines

from hvd_p3_tools import command_line
from hvd_p3_tools.timeline import chrome_trace
from hvd_p3_tools.timeline.model import Rank, Timeline

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def timeline_file(tmp_path):
    path = tmp_path / "timeline.json"
    with path.open("w") as file:
        chrome_trace.write(timelines.timeline(), file)
    return path


def _run(capsys, *arguments):
    code = command_line.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_timeline_prints_numbers_and_draws(timeline_file, capsys):
    code, output, errors = _run(capsys, "timeline", timeline_file)
    assert (code, errors) == (0, "")
    assert "26.0 ms" in output
    assert "it was not ready on rank 1 (10.0 ms)" in output
    assert "13 %" in output  # hidden on rank 0
    picture = timeline_file.with_suffix(".png")
    assert str(picture) in output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_timeline_draws_what_is_asked_for(timeline_file, capsys, tmp_path):
    picture = tmp_path / "other.png"
    arguments = ["--picture", picture, "--from", 0.01, "--to", 0.05, "--waits", 0]
    code, output, _ = _run(capsys, "timeline", timeline_file, *arguments)
    assert code == 0
    assert "0.010 s to 0.050 s" in output
    assert "Longest waits" not in output
    assert picture.exists()


def test_timeline_without_communication(tmp_path, capsys):
    path = tmp_path / "timeline.json"
    with path.open("w") as file:
        chrome_trace.write(Timeline([Rank(0, "host", 0, 10**9, dropped=3)]), file)
    code, output, _ = _run(capsys, "timeline", path)
    assert code == 0
    assert "No gradients went through the priority queue" in output
    assert "dropped 3 events" in output
    assert list(tmp_path.glob("*.png")) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        ("", "is empty"),
        ("no json", "is not JSON"),
        ("[]", "Horovod"),
        ('{"otherData": {"hvd_p3_timeline": 1, "ranks": [{}]}}', "is damaged: KeyError"),
    ],
)
def test_timeline_of_a_file_that_is_none(tmp_path, capsys, content, message):
    path = tmp_path / "timeline.json"
    if content is not None:
        path.write_text(content)
    code, output, errors = _run(capsys, "timeline", path)
    assert (code, output) == (1, "")
    assert errors.startswith("hvd-p3 timeline: ")
    assert message in errors
    assert str(path) in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "2", "--to", "1"], "nothing lies between"),
        (["--from", "nan"], "--from must be a number"),
        (["--waits", "-1"], "--waits must be at least 0"),
        (["--picture", "/nowhere/at/all.png"], "cannot write /nowhere/at/all.png"),
    ],
)
def test_timeline_refuses_what_makes_no_sense(timeline_file, capsys, arguments, message):
    code, _, errors = _run(capsys, "timeline", timeline_file, *arguments)
    assert code == 1
    assert message in errors


@pytest.mark.parametrize("package", ["rich.console", "matplotlib"])
def test_missing_packages_are_named(timeline_file, capsys, monkeypatch, package):
    for module in list(sys.modules):
        if module.startswith(("matplotlib", "hvd_p3_tools.timeline.")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    import hvd_p3_tools.timeline

    for name in ("boxes", "drawing"):
        monkeypatch.delattr(hvd_p3_tools.timeline, name, raising=False)
    code, _, errors = _run(capsys, "timeline", timeline_file)
    assert code == 1
    assert f"the package {package.split('.')[0]} cannot be imported" in errors
    assert "pip install matplotlib rich" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["timeline"], ["timeline", "a", "b"]])
def test_wrong_arguments(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        command_line.main(arguments)
    assert ended.value.code == 2
    assert "usage: hvd-p3" in capsys.readouterr().err


_FAST = """
import sys
from hvd_p3_tools.command_line import main
code = main(sys.argv[1:])
slow = {"tensorflow", "keras", "horovod", "hvd_p3"} & set(sys.modules)
sys.exit(f"imported {slow}" if slow else code)
"""


def test_command_needs_neither_tensorflow_nor_horovod(timeline_file):
    command = [sys.executable, "-c", _FAST, "timeline", str(timeline_file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=_ROOT)
    assert result.returncode == 0, result.stderr


def test_module_is_the_command(timeline_file, tmp_path):
    command = [sys.executable, "-m", "hvd_p3_tools", "timeline", str(tmp_path / "none.json")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=_ROOT)
    assert result.returncode == 1
    assert "cannot read" in result.stderr
    assert "Traceback" not in result.stderr
