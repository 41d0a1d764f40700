"""The example of click-through rates, as a user runs it."""

import json
import re
from pathlib import Path

import launch
import pytest

_EXAMPLE = Path(__file__).parents[2] / "examples" / "ctr_shadow_sync.py"

pytestmark = pytest.mark.parallel


def test_comparison_on_two_ranks(tmp_path):
    files = tmp_path / "results.json", tmp_path / "results.png"
    names = ["s-ma", "fr-easgd", "p3"]
    code, output = launch.run(
        2,
        _EXAMPLE,
        ["--methods", *names, "--batches", 100, "--held-out-batches", 8]
        + ["--json", files[0], "--plot", files[1]],
    )
    assert code == 0, output
    found = json.loads(files[0].read_text())
    assert found["ranks"] == 2
    assert found["settings"]["batches"] == 100
    assert [method["name"] for method in found["methods"]] == names
    (best,) = found["best_possible_normalized_entropy"]
    for method in found["methods"]:
        assert method["examples_per_s"] > 0
        assert best < method["normalized_entropy"] < 0.95, method  # has learned something
        row = rf"^{method['name']} .* {method['normalized_entropy']:.4f}"
        assert re.search(row, output, re.MULTILINE), output
    gaps = {method["name"]: method["average_sync_gap"] for method in found["methods"]}
    assert gaps["p3"] is None
    assert gaps["s-ma"] > 0
    assert gaps["fr-easgd"] == pytest.approx(5.0, rel=0.2)
    assert files[1].read_bytes().startswith(b"\x89PNG")
