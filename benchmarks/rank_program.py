"""What each rank of a benchmark runs. Started by `runner.py`, with a JSON description as its only
argument; rank 0 prints one line of JSON for each result."""

import json
import os
import sys

MARK = "BENCHMARK "


def main(description):
    """Runs all measurements of a description."""
    system = description["system"]
    # hvd_p3 changes how Horovod waits: it must be imported before Horovod, and not at all in the
    # processes of stock Horovod.
    if system["family"] == "hvd_p3":
        import hvd_p3

        hvd_p3.init()
    if system["environment"].get("HOROVOD_CONTROLLER") == "gloo":
        from benchmarks import gloo_rendezvous

        gloo_rendezvous.join(description["addresses"])
    import horovod.tensorflow as horovod

    horovod.init()
    from benchmarks import training

    for measurement in description["measurements"]:
        for result in training.measure(system, measurement):
            if horovod.rank() == 0:
                print(MARK + json.dumps({**result, "model": measurement["model"]}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(json.loads(sys.argv[1]))
