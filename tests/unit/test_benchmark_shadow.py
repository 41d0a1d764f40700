"""The summary of the benchmark of ShadowSync, and its verdict."""

import contextlib
import json
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import shadow, shadow_program
from benchmarks.cluster.launch import LaunchError


def _turn(system, turn, examples_per_s, **others):
    return {"system": system, "turn": turn, "examples_per_s": examples_per_s, **others}


_TURNS = [
    _turn(shadow.BASELINE, 0, 100.0),
    _turn("S-MA", 0, 90.0, syncs_per_min=60.0, sync_gap=10.0),
    _turn("FR-MA", 0, 30.0, syncs_per_min=50.0, sync_gap=5.0),
    _turn(shadow.BASELINE, 1, 200.0),
    _turn("S-MA", 1, 198.0, syncs_per_min=80.0, sync_gap=30.0),
    _turn("FR-MA", 1, 40.0, syncs_per_min=50.0, sync_gap=5.0),
    _turn(shadow.BASELINE, 2, 100.0),
    _turn("S-MA", 2, 96.0, syncs_per_min=70.0, sync_gap=20.0),
    _turn("FR-MA", 2, 30.0, syncs_per_min=50.0, sync_gap=5.0),
]


def test_each_turn_is_compared_with_the_baseline_of_the_same_turn():
    baseline, background, foreground = shadow.summarize(_TURNS)
    assert baseline["ratio"] == baseline["ratio_min"] == baseline["ratio_max"] == 1.0
    assert "sync_gap" not in baseline
    assert background == {
        "system": "S-MA",
        "examples_per_s": 96.0,
        "ratio": pytest.approx(0.96),  # 0.90, 0.99 and 0.96
        "ratio_min": pytest.approx(0.90),
        "ratio_max": pytest.approx(0.99),
        "syncs_per_min": 70.0,
        "sync_gap": 20.0,
    }
    assert foreground["ratio"] == pytest.approx(0.3)
    assert shadow.table_of([baseline, background, foreground]).row_count == 3


def test_only_systems_in_the_background_must_keep_the_threshold():
    results = shadow.summarize(_TURNS)
    assert shadow.too_slow(results, 0.95) == []
    assert [each["system"] for each in shadow.too_slow(results, 0.97)] == ["S-MA"]


def test_nothing_to_compare_with():
    assert shadow.summarize([]) == []
    with pytest.raises(LaunchError, match="no turn with both 'S-MA' and 'no synchronisation'"):
        shadow.summarize(_TURNS[1:2])


@pytest.fixture
def output_of(monkeypatch, tmp_path, capsys):
    """Runs the program on lines that ranks are said to have printed; returns what it prints."""

    def run(lines, *arguments):
        commands = []
        launch = lambda _, command, *__: commands.append(command) or contextlib.nullcontext(lines)  # noqa: E731
        monkeypatch.setattr(shadow, "EmulatedCluster", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(shadow, "launch", launch)
        monkeypatch.setattr(program, "check_requirements", lambda: None)
        monkeypatch.setattr(program.signal, "signal", lambda *_: None)
        program.main(["shadow", "--output", str(tmp_path), *arguments])
        return commands[0], " ".join(capsys.readouterr().out.split())

    return run


def test_the_exit_code_says_whether_the_threshold_is_kept(output_of, tmp_path, capsys):
    lines = [shadow_program.MARK + json.dumps(turn) for turn in _TURNS]
    output_of(lines, "--threshold", "0.95")
    assert len(json.loads((tmp_path / "shadow-results.json").read_text())["results"]) == 3
    with pytest.raises(SystemExit) as ended:
        output_of(lines, "--threshold", "0.97")
    assert ended.value.code == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "S-MA keeps 0.960 of unsynchronised training, less than 0.97" in printed


def test_the_example_on_emulated_hosts(output_of, tmp_path):
    command, printed = output_of(["s-ma, seed 0: [1]"], "--example")
    assert Path(command[1]).is_file()
    assert command[2:] == ["--json", str(tmp_path / "ctr-results.json")]
    assert "s-ma, seed 0: [1]" in printed


def test_blockwise_filtering_is_not_model_averaging():
    systems = shadow_program.systems(shadow._WORKLOAD)
    for name in ("S-BMUF", "FR-BMUF"):
        assert systems[name].algorithm.eta != 1
        assert systems[name].algorithm.block_momentum > 0
