"""Markdown tables of results."""

from benchmarks import report


def _result(system, step_s, **others):
    return {
        "experiment": "ratio",
        "model": "vgg19",
        "r": 1.0,
        "hosts": 4,
        "bandwidth": 1e9,
        "straggler": 1.0,
        "system": system,
        "step_s": step_s,
        "lower_bound_s": 0.5,
        "cpu_s": 0.2,
        **others,
    }


def test_table_compares_with_the_bound_and_the_best_stock_system():
    results = [
        _result("stock-horovod-mpi", 1.2),
        _result("stock-horovod-mpi-tuned", 1.1),
        _result("hvd_p3-overlapped", 0.55),
    ]
    table = report.tables({"results": results})
    assert "| vgg19 | 1.00 | 4 | 1 | 0.500 | 1.200 | 1.100 | 0.550 | 1.10 | 2.00 |" in table


def test_systems_that_were_not_run_leave_their_cells_empty():
    results = [_result("stock-horovod-mpi", 1.2), _result("hvd_p3-immediate", 0.7, r=2.0)]
    table = report.tables({"results": results})
    assert "| vgg19 | 1.00 | 4 | 1 | 0.500 | 1.200 |  |  |  |" in table
    assert "| vgg19 | 2.00 | 4 | 1 | 0.500 |  | 0.700 |  |  |" in table


def test_later_results_replace_earlier_ones():
    first = {"results": [_result("hvd_p3-overlapped", 0.6)], "timelines": [1]}
    second = {"results": [_result("hvd_p3-overlapped", 0.5)], "timelines": [2]}
    merged = report.merged([first, second])
    assert [each["step_s"] for each in merged["results"]] == [0.5]
    assert merged["timelines"] == [1, 2]
