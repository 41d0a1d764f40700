"""Quantities with units, and lists of them."""

import pytest

from hvd_p3_tools.planner import ranges, units
from hvd_p3_tools.planner.errors import PlannerError


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("10Gbit/s", 1.25e9),
        ("10 Gbit/s", 1.25e9),
        ("10Gbit", 1.25e9),
        ("10Gbps", 1.25e9),
        ("1.2 GB/s", 1.2e9),
        ("1e3 MB/s", 1e9),
        ("512 KiB/s", 512 * 1024),
        ("60 MB/min", 1e6),
    ],
)
def test_bandwidth(text, bytes_per_s):
    assert units.bandwidth(text) == pytest.approx(bytes_per_s, rel=1e-12)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (units.size, "40 GiB", 40 * 2**30),
        (units.size, "40 GB", 40e9),
        (units.size, "0 B", 0),
        (units.duration, "3 ms", 3e-3),
        (units.duration, "20us", 20e-6),
        (units.duration, "20 µs", 20e-6),
        (units.throughput, "15 TFLOP/s", 15e12),
        (units.throughput, "300GFLOPS", 3e11),
    ],
)
def test_other_quantities(read, text, value):
    assert read(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (units.bandwidth, "0 Gbit/s", "must be greater than 0"),
        (units.bandwidth, "-1Gbit/s", "must be greater than 0"),
        (units.bandwidth, "10", "a number with a unit, such as 10Gbit/s"),
        (units.bandwidth, "", "a number with a unit"),
        (units.bandwidth, "fast", "a number with a unit"),
        (units.bandwidth, "10 Gb/s", "a number with a unit"),
        (units.bandwidth, "3 ms", "a unit that does not fit"),
        (units.bandwidth, "1e400 GB/s", "must be finite"),
        (units.bandwidth, "nan GB/s", "a number with a unit"),
        (units.size, "40 GB/s", "a unit that does not fit"),
        (units.size, "-4 GB", "must not be negative"),
        (units.size, "4 B/", "a number with a unit"),
        (units.size, "__import__('os')", "a number with a unit"),
        (units.throughput, "0 FLOP/s", "must be greater than 0"),
    ],
)
def test_what_makes_no_sense_is_named(read, text, message):
    with pytest.raises(PlannerError, match=message) as error:
        read(text, "--option")
    assert str(error.value).startswith("--option ")
    assert str(error.value).endswith(f"Received: {text}")
    assert "\n" not in str(error.value)


def test_printing():
    assert units.print_bandwidth(1.25e9) == "10 Gbit/s"
    assert units.print_size(574668960) == "574.7 MB"
    assert units.print_duration(3.2e-3) == "3.2 ms"
    assert units.print_duration(0) == "0 s"
    assert units.print_throughput(15e12) == "15 TFLOP/s"


def test_ranges_double():
    assert ranges.ranks("2..12") == [2, 4, 8, 12]
    assert ranges.ranks("1, 3,2..4") == [1, 3, 2, 4]
    assert ranges.bandwidths("1Gbit/s..3Gbit/s") == pytest.approx([1.25e8, 2.5e8, 3.75e8])


@pytest.mark.parametrize("text", ["0", "", "2..", "-1", "1.5", "9..3", "2,,3", "99999999999", "²"])
def test_ranks_that_make_no_sense(text):
    with pytest.raises(PlannerError, match="--ranks must"):
        ranges.ranks(text)
