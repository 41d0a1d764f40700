"""The plots of the benchmarks' results, and the timelines that one of them draws."""

import json

import pytest

from benchmarks import plots, timeline

_SYSTEMS = ["stock-horovod-mpi", "stock-horovod-gloo", "hvd_p3-immediate", "hvd_p3-overlapped"]


def _result(system, model="vgg19", r=1.0, hosts=4, bandwidth=1e9):
    return {
        "model": model,
        "r": r,
        "hosts": hosts,
        "bandwidth": bandwidth,
        "system": system,
        "step_s": 1.5,
        "step_s_min": 1.4,
        "step_s_max": 1.7,
        "lower_bound_s": max(1.0, r),
        "compute_s": 1.0,
        "communication_s": r,
        "cpu_s": 0.1,
    }


def _interval(name, start_s, end_s, priority=0):
    return {"name": name, "start_s": start_s, "end_s": end_s, "priority": priority}


def _entry(system):
    return timeline.make_entry(
        system,
        "vgg19",
        [_interval("a", 10.5, 11, 0), _interval("b", 10.6, 11.2, 1)],
        [_interval("a", 10, 10.1, 0), _interval("b", 10.1, 10.5, 1)],
        10,
        11.3,
    )


def _results():
    results = []
    for system in _SYSTEMS:
        results += [_result(system, r=r, bandwidth=1e9 / r) for r in (0.5, 1.0, 2.0)]
        results += [_result(system, hosts=hosts, bandwidth=3e9) for hosts in (2, 8)]
        results.append(_result(system, model="digits"))
    entries = [_entry("stock-horovod-mpi"), _entry("hvd_p3-overlapped")]
    return {"settings": {}, "versions": {}, "results": results, "timelines": entries}


def _size(path):
    """Width and height of a PNG, from its first chunk."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[12:16] == b"IHDR"
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_all_are_written(tmp_path):
    folder = tmp_path / "made" / "if needed"
    paths = plots.write_all(_results(), folder)
    names = ["step-time.png", "throughput.png", "hosts.png", "timeline.png"]
    assert paths == [folder / name for name in names]
    for path in paths:
        width, height = _size(path)
        assert width == 1200
        assert 300 < height < 1500
        assert path.stat().st_size > 10_000


@pytest.mark.parametrize("draw", [plots.step_time, plots.throughput, plots.hosts, plots.timeline])
@pytest.mark.parametrize("results", [{}, {"results": [], "timelines": []}, {"timelines": None}])
def test_no_data(draw, results, tmp_path):
    assert draw(results, tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_one_place_makes_no_line(tmp_path):
    results = {"results": [_result(system) for system in _SYSTEMS]}
    assert plots.throughput(results, tmp_path) is None
    assert plots.hosts(results, tmp_path) is None
    assert plots.write_all(results, tmp_path) == [tmp_path / "step-time.png"]


def test_hosts_at_different_bandwidths_and_ratios_are_not_compared(tmp_path):
    results = [_result("hvd_p3-overlapped", hosts=n, r=n, bandwidth=n * 1e9) for n in (2, 4, 8)]
    assert plots.hosts({"results": results}, tmp_path) is None


def test_timeline_needs_both_systems_on_one_model(tmp_path):
    entries = [_entry("stock-horovod-mpi"), _entry("hvd_p3-overlapped")]
    assert plots.timeline({"timelines": entries[:1]}, tmp_path) is None
    assert plots.timeline({"timelines": entries[1:]}, tmp_path) is None
    entries[0]["model"] = "resnet50"
    assert plots.timeline({"timelines": entries}, tmp_path) is None


def test_command_line(tmp_path, monkeypatch, capsys):
    source = tmp_path / "bench-results.json"
    source.write_text(json.dumps(_results()))
    monkeypatch.setattr("sys.argv", ["plots.py", str(source), "--folder", str(tmp_path)])
    plots.main()
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "timeline.png")


def _event(kind, seconds, tensor="kernel", offset=0, priority=3):
    return {
        "kind": kind,
        "time_ns": round(seconds * 1e9),
        "tensor": tensor,
        "priority": priority,
        "offset": offset,
        "bytes": 4096,
        "bytes_in_flight": 0,
    }


def _communication(entry):
    return [
        (each["name"], each["start_s"], each["end_s"])
        for each in entry["events"]
        if each["lane"] == "communication"
    ]


def test_slices_of_one_tensor_that_overlap():
    events = [
        _event("submitted", 1.0),
        _event("started", 1.1, offset=0),
        _event("started", 1.2, offset=1024),
        _event("started", 1.3, "bias", priority=0),
        _event("finished", 1.4, offset=1024),
        _event("finished", 1.5, "bias", priority=0),
        _event("finished", 1.6, offset=0),
        _event("completed", 1.6),
        # The next step reduces the same slice again.
        _event("started", 1.7, offset=0),
        _event("finished", 1.8, offset=0),
    ]
    slices = timeline.slices_of_engine_trace(events)
    assert [(each["name"], each["offset"], each["priority"]) for each in slices] == [
        ("kernel", 0, 3),
        ("kernel", 1024, 3),
        ("bias", 0, 0),
        ("kernel", 0, 3),
    ]
    assert [each["start_s"] for each in slices] == pytest.approx([1.1, 1.2, 1.3, 1.7])
    assert [each["end_s"] for each in slices] == pytest.approx([1.6, 1.4, 1.5, 1.8])


def test_slices_in_flight_at_the_ends_of_the_trace():
    events = [
        _event("submitted", 1.0),
        _event("finished", 1.5, "first"),
        _event("started", 2.0, "last"),
        _event("submitted", 3.0),
    ]
    entry = timeline.from_engine_trace(events, [], 0.0, 10.0)
    assert _communication(entry) == [("first", 1.0, 1.5), ("last", 2.0, 3.0)]


def test_entry_from_engine_trace_is_cut_to_the_step():
    events = [
        _event("started", 0.5, "before"),
        _event("finished", 0.9, "before"),
        _event("started", 0.9, "across"),
        _event("finished", 1.5, "across"),
    ]
    computation = [_interval("dense", 1.0, 1.2, 4), _interval("dense", 1.9, 2.5, 4)]
    entry = timeline.from_engine_trace(events, computation, 1.0, 2.0, model="vgg19")
    assert _communication(entry) == [("across", 1.0, 1.5)]
    assert entry["events"][:2] == [
        {"lane": "computation", **_interval("dense", 1.0, 1.2, 4)},
        {"lane": "computation", **_interval("dense", 1.9, 2.0, 4)},
    ]
    assert entry["system"] == "hvd_p3-overlapped"
    assert entry["model"] == "vgg19"
    assert (entry["step_start_s"], entry["step_end_s"]) == (1.0, 2.0)
    json.dumps(entry)


def test_no_events():
    assert timeline.from_engine_trace([], [], 0.0, 1.0)["events"] == []


def test_step_that_ends_before_it_starts():
    with pytest.raises(ValueError, match="start_s must be before end_s") as error:
        timeline.from_engine_trace([], [], 2.0, 1.0)
    assert "Received: start_s=2.0, end_s=1.0" in str(error.value)


# As Horovod 0.28.1 writes it: an end has no name, and ends what its tensor began last.
_HOROVOD_TIMELINE = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":5000000}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad/kernel"}},
{"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
{"ph": "X", "name": "0", "ts": 101, "pid": 1, "dur": 0},{"ph": "i", "name": "CYCLE_START", "ts": 102, "s": "g"},
{"ph": "E", "ts": 200, "pid": 1},
{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "grad/bias"}},
{"ph": "B", "name": "ALLREDUCE", "ts": 300, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 301, "pid": 2},
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 310, "pid": 1},
{"ph": "E", "ts": 390, "pid": 1},
{"ph": "B", "name": "MPI_ALLREDUCE", "ts": 400, "pid": 1},
{"ph": "B", "name": "MPI_ALLREDUCE", "ts": 401, "pid": 2},
{"ph": "E", "ts": 900, "pid": 1},
{"ph": "E", "ts": 901, "pid": 2},
{"ph": "E", "ts": 950, "pid": 1, "args": {"dtype": "float32", "shape": "[2, 3]"}},
{"ph": "B", "name": "ALLREDUCE", "ts": 1000, "pid": 1},
{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 1100, "pid": 1},
{"ph": "E", "ts": 1300, "pid": 1},
{"ph": "E", "ts": 1310, "pid": 1}"""  # noqa: E501
_HOROVOD_INTERVALS = [
    ("grad/kernel", 400e-6, 900e-6),
    ("grad/bias", 401e-6, 901e-6),
    ("grad/kernel", 1100e-6, 1300e-6),
]


@pytest.mark.parametrize("end", ["]", "", ",", ',\n{"ph": "B", "name": "MPI_ALL', '\n,{"ph": "E"'])
def test_horovod_timeline(end, tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text(_HOROVOD_TIMELINE + end)
    intervals = timeline.from_horovod_timeline(path)
    names, starts, ends = zip(*_HOROVOD_INTERVALS, strict=True)
    assert [each["name"] for each in intervals] == list(names)
    assert [each["start_s"] for each in intervals] == pytest.approx(starts)
    assert [each["end_s"] for each in intervals] == pytest.approx(ends)
    assert {each["priority"] for each in intervals} == {0}


def test_horovod_timeline_with_priorities(tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text(_HOROVOD_TIMELINE)
    intervals = timeline.from_horovod_timeline(path, {"grad/bias": 5})
    assert [(each["name"], each["priority"]) for each in intervals] == [("grad/bias", 5)]


def test_horovod_timeline_of_other_activities(tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text(_HOROVOD_TIMELINE)
    (interval,) = timeline.from_horovod_timeline(path, activities=("MEMCPY_IN_FUSION_BUFFER",))
    assert (interval["start_s"], interval["end_s"]) == pytest.approx((310e-6, 390e-6))


@pytest.mark.parametrize("content", ["", "[", '[\n{"name": "process_na'])
def test_horovod_timeline_without_events(content, tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text(content)
    assert timeline.from_horovod_timeline(path) == []
    assert timeline.horovod_timeline_start(path) is None


def test_horovod_timeline_start(tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text(_HOROVOD_TIMELINE)
    assert timeline.horovod_timeline_start(path) == 5.0


def test_experiments_are_not_mixed():
    def result(experiment, step_s, **others):
        return {
            "experiment": experiment,
            "model": "vgg19",
            "r": 1.0,
            "hosts": 4,
            "bandwidth": 1e9,
            "straggler": 1.0,
            "system": "hvd_p3-overlapped",
            "step_s": step_s,
            "compute_s": 0.45,
            **others,
        }

    ratio = result("ratio", 0.5)
    twice = result("ratio", 0.4, r=2.0, compute_s=0.225)
    slow = result("bandwidth", 0.9, bandwidth=0.5e9, r=2.0)
    late = result("straggler", 0.7, straggler=1.3)
    digits = result("real", 0.1, r=None, model="digits")
    document = {"results": [ratio, twice, slow, late, digits]}
    assert plots._select(document, "ratio") == [ratio, twice]
    assert plots._select(document, "bandwidth") == [slow, ratio]
    assert plots._select(document, "hosts") == []
