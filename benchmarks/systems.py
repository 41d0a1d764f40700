"""The systems that are compared: how each is launched, and how it trains a Keras model.

Imports neither TensorFlow nor Horovod; the ranks do.
"""

import dataclasses

MIB = 1024 * 1024
AUTOTUNE_STEPS = 230  # some more than the search of settings takes


@dataclasses.dataclass(frozen=True)
class System:
    """One system.

    Args:
        name: str, as in the results.
        family: "horovod", "hvd_p3", or "keras" for ranks that train each for itself.
        environment: dict of the environment variables that make it.
        overlapped: bool. For hvd_p3: overlapped or immediate mode.
        is_tuned: bool. For Horovod: whether `environment` has the best settings that were found.
    """

    name: str
    family: str
    environment: dict = dataclasses.field(default_factory=dict)
    overlapped: bool = False
    is_tuned: bool = False

    @property
    def is_autotuned(self):
        """Whether it searches its settings in its first `AUTOTUNE_STEPS` executions."""
        return "HVD_P3_AUTOTUNE" in self.environment


def with_settings(system, fusion_threshold_kib=None, cycle_time_ms=None):
    """Returns a tuned Horovod with these settings instead; `None` leaves one as it is."""
    environment = dict(system.environment)
    if fusion_threshold_kib is not None:
        environment["HOROVOD_FUSION_THRESHOLD"] = str(1024 * fusion_threshold_kib)
    if cycle_time_ms is not None:
        environment["HOROVOD_CYCLE_TIME"] = f"{cycle_time_ms:g}"
    return dataclasses.replace(system, environment=environment)


HOROVOD = System("stock-horovod-mpi", "horovod")
# The settings of the tuned ones are the best of `python -m benchmarks tune`; see
# docs/performance.md.
HOROVOD_TUNED = with_settings(System("stock-horovod-mpi-tuned", "horovod", is_tuned=True), 128, 5.0)
# As under `horovodrun --gloo`, see gloo_rendezvous.py.
HOROVOD_GLOO = with_settings(
    System(
        "stock-horovod-gloo",
        "horovod",
        {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"},
        is_tuned=True,
    ),
    2048,
    5.0,
)
IMMEDIATE = System("hvd_p3-immediate", "hvd_p3")
OVERLAPPED = System("hvd_p3-overlapped", "hvd_p3", overlapped=True)
# What each of the two ideas brings without the other. Both are without the barrier at the end of a
# step, as in the paper's own comparison.
SLICES_ONLY = System("hvd_p3-slices-only", "hvd_p3", {"HVD_P3_PRIORITIES": "0"}, overlapped=True)
PRIORITY_ONLY = System(
    "hvd_p3-priority-only", "hvd_p3", {"HVD_P3_SLICE_BYTES": str(1024 * MIB)}, overlapped=True
)
# No system to compare, but what a step takes on this machine when nothing is sent. Horovod counts
# the ranks, over Gloo: over MPI its idle thread would take half a processor.
NO_COMMUNICATION = System("no-communication", "keras", HOROVOD_GLOO.environment)
