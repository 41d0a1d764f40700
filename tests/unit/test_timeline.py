"""Timelines from events to files, numbers and explanations, on a small one with known answers."""

import dataclasses
import io
import itertools
import json

import pytest
import timelines
from timelines import BIAS, FIRST, LAST, ms

from hvd_p3_tools.timeline import boxes, chrome_trace, drawing, records, summary, waits
from hvd_p3_tools.timeline.model import PHASES, Slice, Timeline, cut, length, union


def _written(timeline):
    file = io.StringIO()
    chrome_trace.write(timeline, file)
    return file.getvalue()


def _phases(reduction):
    return [getattr(reduction, phase) for phase in PHASES]


def test_events_become_reductions_slices_and_waits():
    rank = timelines.timeline().ranks[0]
    by_tensor = {each.tensor: each for each in rank.reductions}
    assert _phases(by_tensor["last/kernel"]) == [ms(t) for t in (0, 2, 2, 4, 24, 50)]
    assert _phases(by_tensor["first/kernel"]) == [ms(t) for t in (10, 32, 32, 36, 46, 48)]
    assert _phases(by_tensor["first/bias"]) == [ms(t) for t in (10, 12, 32, 36, 46, 48)]
    assert by_tensor["first/kernel"].wait_began == ms(20)
    assert by_tensor["last/kernel"].slices == [0, 1]
    assert [(each.tensors, each.start, each.end) for each in rank.slices] == [
        (["last/kernel"], ms(4), ms(14)),
        (["last/kernel"], ms(4), ms(24)),
        (["first/kernel", "first/bias"], ms(36), ms(46)),
    ]
    assert [(w.tensor, w.tensors, w.start, w.end) for w in rank.waits] == [
        ("first/kernel", 1, ms(20), ms(46))
    ]
    assert max(size for _, size in rank.bytes_in_flight) == 2000


def test_overlapping_waits_are_one_that_names_the_last():
    rank = timelines.build_rank(
        0,
        [
            ("wait began", 1, FIRST, -1, 0, 0, 0),
            ("wait began", 2, LAST, -1, 0, 0, 0),
            ("wait ended", 3, FIRST, -1, 0, 0, 0),
            ("wait ended", 5, LAST, -1, 0, 0, 0),
            ("wait began", 7, BIAS, -1, 0, 0, 0),
            ("wait ended", 8, BIAS, -1, 0, 0, 0),
        ],
    )
    assert [(w.tensor, w.tensors, w.start, w.end) for w in rank.waits] == [
        ("last/kernel", 2, ms(1), ms(5)),
        ("first/bias", 1, ms(7), ms(8)),
    ]


def test_what_is_cut_off_by_the_recording():
    rank = timelines.build_rank(
        0,
        [
            ("finished", 1, LAST, 7, 0, 1000, 0),
            ("wait ended", 2, LAST, -1, 0, 0, 0),
            ("completed", 2, LAST, -1, 0, 1000, 0),
            ("applied", 2, LAST, -1, 0, 0, 0),
            ("submitted", 3, FIRST, -1, 0, 400, 0),
            ("queued", 4, FIRST, -1, 0, 400, 0),
            ("started", 5, FIRST, 8, 0, 400, 400),
            ("wait began", 6, FIRST, -1, 0, 0, 0),
        ],
        end=9,
    )
    assert [(each.number, each.start, each.end, each.unfinished) for each in rank.slices] == [
        (7, 0, ms(1), False),
        (8, ms(5), ms(9), True),
    ]
    assert [(each.start, each.end) for each in rank.waits] == [(0, ms(2)), (ms(6), ms(9))]
    (reduction,) = rank.reductions
    assert _phases(reduction) == [ms(3), None, ms(4), ms(5), None, None]
    # What is open can be written, too.
    document = json.loads(_written(Timeline([rank])))
    phases = [event["ph"] for event in document["traceEvents"]]
    assert phases.count("b") == phases.count("e")


def test_full_record_ends_with_its_last_event():
    """What goes on then is in no sum: when it ended was not recorded."""
    events = [each for each in timelines.events_of_rank(0) if each[1] <= 36]
    rank = timelines.build_rank(0, events, end=100_000, dropped=1000)
    assert rank.end == ms(36)
    assert [each.number for each in rank.slices if each.unfinished] == [2]
    assert rank.waits == []
    found = summary.summarize(rank)
    assert found.recorded_s == 0.036
    assert (found.slices, found.bytes) == (2, 2000)
    assert found.communication_s == 0.020  # slices 0 and 1
    assert found.waited_s == 0.0


def test_full_record_without_events():
    rank = timelines.build_rank(0, [], end=9, dropped=3)
    assert (rank.start, rank.end) == (0, 0)
    assert summary.summarize(rank).busy_share == 0.0


def _parts(tmp_path, *, start_since_epoch, ranks=(0, 1)):
    whole = timelines.timeline()
    whole.start_since_epoch = start_since_epoch
    for number in ranks:
        part = dataclasses.replace(whole, ranks=[whole.ranks[number]])
        (tmp_path / f"timeline.json.rank{number}").write_text(_written(part))
    return whole


def test_parts_of_ranks_are_read_together(tmp_path):
    path = tmp_path / "timeline.json"
    path.touch()
    _parts(tmp_path, start_since_epoch=1e9)
    _parts(tmp_path, start_since_epoch=2e9, ranks=[1])
    (tmp_path / "timeline.json.rank1.png").touch()
    # Of an earlier recording, that of rank 0 is left.
    assert [rank.number for rank in chrome_trace.read(path).ranks] == [1]
    whole = _parts(tmp_path, start_since_epoch=2e9)
    assert chrome_trace.read(path) == whole
    path.unlink()  # as on the host of another rank
    assert chrome_trace.read(path) == whole
    path.write_text(_written(timelines.timeline()))
    assert chrome_trace.read(path).start_since_epoch == 1e9


def test_file_can_be_read_again(tmp_path):
    timeline = timelines.timeline()
    timeline.ranks[0].rounds = [ms(2), ms(32)]
    timeline.ranks[1].dropped = 3
    path = tmp_path / "timeline.json"
    path.write_text(_written(timeline))
    assert chrome_trace.read(path) == timeline


def test_file_is_what_viewers_expect():
    document = json.loads(_written(timelines.timeline()))
    events = document["traceEvents"]
    for event in events:
        assert {"ph", "pid", "name"} <= event.keys()
        assert event["ph"] == "M" or event["ts"] >= 0
    names = {
        (event["pid"], event["args"].get("name"))
        for event in events
        if event["name"] in ("process_name", "thread_name")
    }
    assert {(0, "rank 0 on host0"), (1, "rank 1 on host1"), (0, "slices in flight 2")} <= names
    _assert_nested(events)
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == 2 * (3 + 1)
    _assert_no_overlap(complete)
    counters = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert max(counters) == 2000
    assert counters[-1] == 0


def _assert_nested(events):
    """Every begin of a track has its end, the last that began ends first."""
    stacks = {}
    for event in events:
        if event["ph"] in "be":
            stack = stacks.setdefault((event["cat"], event["id"]), [])
            if event["ph"] == "b":
                stack.append(event)
            else:
                begin = stack.pop()
                assert begin["name"] == event["name"]
                assert begin["ts"] <= event["ts"]
    assert len(stacks) == 2 * 3
    assert not any(stacks.values())


def _assert_no_overlap(complete):
    by_thread = {}
    for event in complete:
        by_thread.setdefault((event["pid"], event["tid"]), []).append(event)
    for thread in by_thread.values():
        thread.sort(key=lambda event: event["ts"])
        for one, other in itertools.pairwise(thread):
            assert one["ts"] + one["dur"] <= other["ts"] + 1e-3


def test_lanes():
    spans = [(0, 10), (0, 5), (5, 9), (6, 7), (10, 11)]
    slices = [Slice(i, ["t"], 0, 0, 1, start, end) for i, (start, end) in enumerate(spans)]
    assert chrome_trace.lanes(slices) == [0, 1, 1, 2, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ('{"traceEvents": [', "is not JSON"),
        ("[]", "Horovod"),
        ("{}", "no timeline of hvd_p3"),
        ('{"otherData": {"hvd_p3_timeline": 99, "hvd_p3": "9.0"}}', "hvd_p3 9.0 in another format"),
    ],
)
def test_other_files(tmp_path, content, message):
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(chrome_trace.NotATimeline, match=message):
        chrome_trace.read(path)


def test_tensors_of_one_name_are_told_apart():
    tensors = [("a", "kernel"), ("b", "kernel"), ("a", "bias"), ("a", "kernel")]
    assert records.labels(tensors) == {
        ("a", "kernel"): "kernel (a)",
        ("b", "kernel"): "kernel (b)",
        ("a", "bias"): "bias",
    }


def test_summary():
    ranks = [summary.summarize(rank) for rank in timelines.timeline().ranks]
    assert ranks[0].recorded_s == 0.1
    assert ranks[0].steps == 1
    assert ranks[0].step_s is None
    assert (ranks[0].slices, ranks[0].bytes) == (3, 2500)
    assert ranks[0].communication_s == pytest.approx(0.030)  # 4 to 24, 36 to 46
    assert ranks[0].waited_s == pytest.approx(0.026)
    assert ranks[0].hidden_share == pytest.approx(1 - 26 / 30)
    assert ranks[0].busy_share == pytest.approx(0.3)
    assert ranks[0].bytes_per_s == pytest.approx(2500 / 0.030)
    whole = summary.total(ranks)
    assert whole.slices == 6
    assert whole.waited_s == pytest.approx(0.026 + 0.016)
    assert whole.clock_error_s == pytest.approx(1e-6)


def test_steps_are_those_of_the_most_frequent_tensor():
    events = [("submitted", 10 * step, LAST, -1, 0, 8, 0) for step in range(4)]
    events.append(("submitted", 35, FIRST, -1, 0, 8, 0))
    found = summary.summarize(timelines.build_rank(0, events))
    assert (found.steps, found.step_s) == (4, pytest.approx(0.010))


def test_empty_rank():
    found = summary.summarize(timelines.build_rank(0, []))
    assert (found.steps, found.hidden_share, found.bytes_per_s) == (0, 0.0, 0.0)
    assert waits.Explainer(Timeline([timelines.build_rank(0, [])])).worst(10) == []


def test_wait_for_a_rank_that_is_late():
    worst = waits.Explainer(timelines.timeline()).worst(10)
    assert [(each.rank, each.wait.end - each.wait.start) for each in worst] == [
        (0, ms(26)),
        (1, ms(16)),
    ]
    # 20 to 46: rank 1 has it at 30, all know at 32, it is sent from 36 on.
    assert worst[0].parts == {
        "its slices were on the wire": ms(10),
        "it was not ready on rank 1": ms(10),
        "it was queued until all ranks had finished earlier slices": ms(4),
        "ranks agreed on what is ready (negotiation)": ms(2),
    }
    assert sum(worst[1].parts.values()) == ms(16)
    assert "it was not ready on rank 1" not in worst[1].parts


def test_wait_for_a_tensor_that_shares_a_slice():
    timeline = timelines.timeline()
    rank = timeline.ranks[0]
    wait = rank.waits[0]
    wait.tensor = "first/bias"  # negotiated at 12, with its slice complete at 32
    (found,) = waits.Explainer(Timeline([rank, timeline.ranks[1]])).worst(1)
    reason = "its slice is shared with first/kernel, which was not ready on rank 1"
    assert found.parts[reason] == ms(12)


def test_wait_behind_more_urgent_slices():
    events = [
        ("submitted", 0, LAST, -1, 0, 8, 0),
        ("submitted", 0, FIRST, -1, 0, 8, 0),
        ("negotiated", 1, FIRST, -1, 0, 8, 0),
        ("negotiated", 1, LAST, -1, 0, 8, 0),
        ("queued", 1, FIRST, -1, 0, 8, 0),
        ("queued", 1, LAST, -1, 0, 8, 0),
        ("started", 1, FIRST, 0, 0, 8, 8),
        ("wait began", 2, LAST, -1, 0, 0, 0),
        ("finished", 11, FIRST, 0, 0, 8, 0),
        ("started", 12, LAST, 1, 0, 8, 8),
        ("finished", 13, LAST, 1, 0, 8, 0),
        ("completed", 13, LAST, -1, 0, 8, 0),
        ("wait ended", 13, LAST, -1, 0, 0, 0),
    ]
    timeline = Timeline([timelines.build_rank(0, events)])
    (found,) = waits.Explainer(timeline).worst(10)
    assert found.parts == {
        "it was queued behind more urgent slices": ms(10),
        "its slices were on the wire": ms(1),
    }
    # The other way round, what is in flight is less urgent.
    swapped = [(kind, time, {0: 1, 1: 0}[tensor], *rest) for kind, time, tensor, *rest in events]
    (found,) = waits.Explainer(Timeline([timelines.build_rank(0, swapped)])).worst(10)
    assert found.parts["it was queued behind slices that were in flight already"] == ms(10)


def test_wait_for_what_was_submitted_before_the_recording():
    events = [("wait ended", 3, LAST, -1, 0, 0, 0)]
    (found,) = waits.Explainer(Timeline([timelines.build_rank(0, events)])).worst(10)
    assert found.parts == {"its reduction began before the recording": ms(3)}


def test_intervals():
    intervals = [(5, 7), (0, 2), (1, 3), (3, 4)]
    assert union(intervals) == [(0, 4), (5, 7)]
    assert length(intervals) == 6
    assert cut(intervals, 2, 6) == [(5, 6), (2, 3), (3, 4)]


def test_drawing(tmp_path):
    path = tmp_path / "picture.png"
    drawing.draw(timelines.timeline(), 0, ms(60), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    # A part in which nothing happens.
    drawing.draw(timelines.timeline(), ms(60), ms(90), path)


def test_counter_as_steps():
    times, heights = drawing._steps([(1, 10), (3, 20), (9, 0)], 2, 5)
    assert (times, heights) == ((2, 3, 5), (10, 20, 20))


def test_intervals_that_overlap_share_the_height():
    assert list(boxes.shares([(0, 2, 7), (1, 3, 0)])) == [
        (0, 1, 0, 1, 7),
        (1, 2, 0, 0.5, 7),
        (1, 2, 0.5, 1, 0),
        (2, 3, 0, 1, 0),
    ]


def test_nothing_is_drawn_while_waiting():
    assert [box[:2] for box in boxes.shares([(0, 1, 0), (2, 3, 0)])] == [(0, 1), (2, 3)]
