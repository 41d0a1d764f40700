"""Imports Horovod first on one rank and hvd_p3 first on the other; for test_failures.py."""

import importlib
import os

if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    importlib.import_module("horovod.tensorflow")
hvd_p3 = importlib.import_module("hvd_p3")
hvd_p3.init()
print("has started", flush=True)
