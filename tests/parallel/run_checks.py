"""The program that ranks run: calls the checks of a module, one after the other, on all ranks.

    horovodrun -np 2 python tests/parallel/run_checks.py MODULE OUTPUT_FOLDER [CHECK...]

A check is a function whose name starts with `check_`; it fails by raising. A module may have
another `PREFIX`, and a function `run_check` that is called with each check instead. Starting ranks
and TensorFlow takes most of the time, so one start serves many checks. Each rank writes its results
to OUTPUT_FOLDER/RANK.json: the name of each check that ran, and "", "skipped: " and the reason of a
`unittest.SkipTest`, or the traceback of its failure.
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


def main(module_path, output_folder, *wanted):
    here = Path(__file__).parent
    sys.path[:0] = [str(Path(module_path).parent), str(here), str(here.parent)]
    module = load(module_path)
    getattr(module, "before_init", lambda: None)()
    hvd.init(**getattr(module, "SETTINGS", {}))
    run_check = getattr(module, "run_check", lambda check: check())
    results = {}
    for name, check in list(vars(module).items()):
        if not name.startswith(getattr(module, "PREFIX", "check_")):
            continue
        if wanted and name not in wanted:
            continue
        started = time.monotonic()
        try:
            run_check(check)
            results[name] = ""
        except unittest.SkipTest as skipped:
            results[name] = f"{SKIPPED}{skipped}"
        except Exception:
            results[name] = traceback.format_exc()
        if hvd.rank() == 0:
            verdict = "failed" if _has_failed(results[name]) else "passed"
            print(f"{name} {verdict} in {time.monotonic() - started:.1f} s", flush=True)
        Path(output_folder, f"{hvd.rank()}.json").write_text(json.dumps(results))
        failed_anywhere = hvd.allreduce(
            tf.constant(int(_has_failed(results[name]))), op=hvd.Sum, name=f"failed.{name}"
        )
        if int(failed_anywhere) > 0:
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
