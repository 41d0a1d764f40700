"""The program that ranks run: calls checks of modules, one after the other, on all ranks.

    horovodrun -np 2 python tests/parallel/run_checks.py OUTPUT_FOLDER MODULE.py[::CHECK]...

A check is a function whose name starts with `check_`; it fails by raising. A module may have
another `PREFIX`, a function `run_check` that is called with each check instead, `SETTINGS` for
`hvd_p3.init` and a function `before_init`; those of the first module count. Without CHECK, all of a
module run. Starting ranks and TensorFlow takes most of the time, so one start serves many checks.
Each rank writes its results to OUTPUT_FOLDER/RANK.json: MODULE.py::CHECK of each check that ran,
and "", "skipped: " and the reason of a `unittest.SkipTest`, or the traceback of its failure.
After a failure on any rank the others stop too, since ranks may no longer be in step.
"""

import importlib.util
import json
import sys
import time
import traceback
import unittest
from pathlib import Path

import tensorflow as tf

import hvd_p3 as hvd

SKIPPED = "skipped: "


def _has_failed(result):
    return bool(result) and not result.startswith(SKIPPED)


def load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_in(module):
    """The names of a module's checks, in order."""
    prefix = getattr(module, "PREFIX", "check_")
    return [name for name in vars(module) if name.startswith(prefix)]


def run(module, name):
    """Runs a check on this rank; returns its result."""
    run_check = getattr(module, "run_check", lambda check: check())
    started = time.monotonic()
    try:
        run_check(getattr(module, name))
        result = ""
    except unittest.SkipTest as skipped:
        result = f"{SKIPPED}{skipped}"
    except Exception:
        result = traceback.format_exc()
    if hvd.rank() == 0:
        verdict = "failed" if _has_failed(result) else "passed"
        print(f"{name} {verdict} in {time.monotonic() - started:.1f} s", flush=True)
    return result


def main(output_folder, *wanted):
    here = Path(__file__).parent
    paths = dict.fromkeys(each.partition("::")[0] for each in wanted)
    folders = [*(Path(path).parent for path in paths), here, here.parent]
    sys.path[:0] = list(dict.fromkeys(map(str, folders)))
    modules = {path: load(path) for path in paths}
    first = next(iter(modules.values()))
    getattr(first, "before_init", lambda: None)()
    hvd.init(**getattr(first, "SETTINGS", {}))
    results = {}
    for each in wanted:
        path, _, name = each.partition("::")
        for check in [name] if name else names_in(modules[path]):
            result = run(modules[path], check)
            results[f"{path}::{check}"] = result
            Path(output_folder, f"{hvd.rank()}.json").write_text(json.dumps(results))
            failed_anywhere = hvd.allreduce(
                tf.constant(int(_has_failed(result))), op=hvd.Sum, name=f"failed.{path}.{check}"
            )
            if int(failed_anywhere) > 0:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
