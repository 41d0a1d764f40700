"""The systems that are compared: how each is launched, and how it trains a Keras model.

Imports neither TensorFlow nor Horovod; the ranks do.
"""

import dataclasses

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class System:
    """One system.

    Args:
        name: str, as in the results.
        family: "horovod" or "hvd_p3".
        environment: dict of the environment variables that make it.
        overlapped: bool. For hvd_p3: overlapped or immediate mode.
    """

    name: str
    family: str
    environment: dict = dataclasses.field(default_factory=dict)
    overlapped: bool = False


HOROVOD = System("stock-horovod-mpi", "horovod")
# As under `horovodrun --gloo`, see gloo_rendezvous.py.
HOROVOD_GLOO = System(
    "stock-horovod-gloo",
    "horovod",
    {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"},
)
IMMEDIATE = System("hvd_p3-immediate", "hvd_p3")
OVERLAPPED = System("hvd_p3-overlapped", "hvd_p3", overlapped=True)
# What each of the two ideas brings without the other. Both are without the barrier at the end of a
# step, as in the paper's own comparison.
SLICES_ONLY = System("hvd_p3-slices-only", "hvd_p3", {"HVD_P3_PRIORITIES": "0"}, overlapped=True)
PRIORITY_ONLY = System(
    "hvd_p3-priority-only", "hvd_p3", {"HVD_P3_SLICE_BYTES": str(1024 * MIB)}, overlapped=True
)


# The best of the search of `python -m benchmarks tune`; see docs/performance.md.
TUNED_FUSION_THRESHOLD_BYTES = 128 * 1024
TUNED_CYCLE_TIME_MS = 1.0


def tuned_horovod(
    fusion_threshold_bytes=TUNED_FUSION_THRESHOLD_BYTES, cycle_time_ms=TUNED_CYCLE_TIME_MS
):
    """Stock Horovod with MPI and these two settings."""
    return System(
        "stock-horovod-mpi-tuned",
        "horovod",
        {
            "HOROVOD_FUSION_THRESHOLD": str(fusion_threshold_bytes),
            "HOROVOD_CYCLE_TIME": f"{cycle_time_ms:g}",
        },
    )
