"""How results are written: the cells of a step, and tables in Markdown for docs/performance.md.

python -m benchmarks.report build/bench/bench-results.json
"""

import json
import sys
from pathlib import Path

_OVERLAPPED = "hvd_p3-overlapped"


STEP_COLUMNS = ("step s", "min to max", "bound s", "step / bound", "CPU s")


def step_cells(result):
    """Returns the cells of `STEP_COLUMNS`, a list of str.

    Args:
        result: dict, as in the `results` of bench-results.json.
    """
    return [
        f"{result['step_s']:.3f}",
        f"{result['step_s_min']:.3f} to {result['step_s_max']:.3f}",
        f"{result['lower_bound_s']:.3f}",
        f"{result['step_s'] / result['lower_bound_s']:.3f}",
        f"{result['cpu_s']:.3f}",
    ]


def merged(documents):
    """Returns one results document from those of several runs.

    A later result replaces an earlier one of the same experiment, model, ratio, cluster and system.

    Args:
        documents: List of dicts, as in bench-results.json.
    """
    results = {}
    for document in documents:
        for each in document["results"]:
            ratio = None if each["r"] is None else round(each["r"], 2)
            where = (each["hosts"], each["bandwidth"], each["straggler"])
            results[each["experiment"], each["model"], ratio, where, each["system"]] = each
    timelines = [entry for document in documents for entry in document.get("timelines", [])]
    return {**documents[-1], "results": list(results.values()), "timelines": timelines}


def tables(document):
    """Returns the Markdown of a results document: for each experiment one table of seconds a step,
    and one of processor seconds a step.

    Args:
        document: dict, as in bench-results.json.
    """
    parts = []
    for experiment in dict.fromkeys(each["experiment"] for each in document["results"]):
        results = [each for each in document["results"] if each["experiment"] == experiment]
        parts += [f"**{experiment}**, seconds a step (median):", _table(results, "step_s")]
        parts += [f"**{experiment}**, processor seconds a step:", _table(results, "cpu_s")]
    return "\n\n".join(parts) + "\n"


def _table(results, field):
    systems = list(dict.fromkeys(each["system"] for each in results))
    timed = field == "step_s"
    header = ["model", "r", "hosts", "Gbit/s"] + (["lower bound"] if timed else []) + systems
    header += ["overlapped / bound", "best stock / overlapped"] if timed else []
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    rows = {}
    for each in results:
        ratio = "" if each["r"] is None else f"{each['r']:.2f}"
        row = (each["model"], ratio, str(each["hosts"]), f"{each['bandwidth'] / 1e9:g}")
        rows.setdefault(row, {})[each["system"]] = each
    for row, by_system in rows.items():
        bound = next(iter(by_system.values()))["lower_bound_s"]
        cells = [*row] + ([f"{bound:.3f}"] if timed else [])
        cells += [
            f"{by_system[system][field]:.3f}" if system in by_system else "" for system in systems
        ]
        cells += _ratios(by_system, bound) if timed else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ratios(by_system, bound):
    stock = [each["step_s"] for name, each in by_system.items() if name.startswith("stock")]
    if _OVERLAPPED not in by_system:
        return ["", ""]
    overlapped = by_system[_OVERLAPPED]["step_s"]
    against_bound = f"{overlapped / bound:.2f}" if bound > 0 else ""
    return [against_bound, f"{min(stock) / overlapped:.2f}" if stock else ""]


if __name__ == "__main__":
    print(tables(merged([json.loads(Path(path).read_text()) for path in sys.argv[1:]])))
