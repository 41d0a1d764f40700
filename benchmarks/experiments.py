"""What is measured: models, ratios, hosts and bandwidths, and in which launches."""

import dataclasses

from benchmarks import systems
from hvd_p3_tools.planner import bounds
from hvd_p3_tools.planner import model_tables as models

GIGABIT = 1e9
# Communication of a replayed model at the reference bandwidth: long enough that the overhead of a
# step, some milliseconds, is small, and short enough for many steps.
COMMUNICATION_S = 0.45
# More than a step of any system takes beside its computation, in seconds.
_SLOW_COMMUNICATION_S = 5.0

MAIN = (systems.HOROVOD, systems.HOROVOD_GLOO, systems.OVERLAPPED)
ALL = (
    systems.HOROVOD,
    systems.HOROVOD_TUNED,
    systems.HOROVOD_GLOO,
    systems.IMMEDIATE,
    systems.SLICES_ONLY,
    systems.PRIORITY_ONLY,
    systems.OVERLAPPED,
)
BY_NAME = (*ALL, systems.NO_COMMUNICATION)  # those that can be asked for

# Many small tensors without a model, which only some systems reduce.
TENSOR_COUNTS = ("tensors-1000", "tensors-10000")
MODELS = (*models.names(), "digits", *TENSOR_COUNTS)
VARIED = "ratio"  # the experiment of any models and ratios

TUNED = tuple(each for each in ALL if each.is_tuned)

TIMELINE = (systems.HOROVOD_GLOO, systems.OVERLAPPED)
TENSORS = (
    systems.HOROVOD,
    systems.HOROVOD_TUNED,
    systems.HOROVOD_GLOO,
    systems.IMMEDIATE,
)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Models at some ratios on one cluster, with some systems.

    Args:
        name: str, for the results.
        models: tuple of str.
        ratios: tuple of float: ideal communication over computation.
        systems: tuple of `System`.
        hosts: int.
        bandwidth: float, bits per second.
        reference_bandwidth: Optional float, bits per second: the one at which `ratios` hold, if
            models and computation are to be those of another bandwidth.
        straggler: float. The last rank computes this many times as long.
    """

    name: str
    models: tuple
    ratios: tuple
    systems: tuple
    hosts: int = 4
    bandwidth: float = GIGABIT
    reference_bandwidth: float = None
    straggler: float = 1.0


def short(hosts, bandwidth, ratios=(0.5, 1.0, 2.0)):
    """The experiments of `make bench`."""
    return [Experiment(VARIED, ("vgg19", "resnet50"), ratios, MAIN, hosts, bandwidth)]


def full(hosts, bandwidth):
    """The experiments of `make bench-full`."""
    ratios = (0.25, 0.5, 1.0, 2.0, 4.0)
    replayed = ("vgg19", "resnet50", "inception_v3", "sockeye")
    return [
        Experiment(VARIED, replayed, ratios, ALL, hosts, bandwidth),
        *(
            Experiment("bandwidth", ("vgg19",), (1.0,), MAIN, hosts, factor * bandwidth, bandwidth)
            for factor in (0.25, 0.5, 2.0)
        ),
        *(Experiment("hosts", ("vgg19",), (1.0,), MAIN, each, bandwidth) for each in (2, 3, 8)),
        Experiment("timeline", ("vgg19",), (1.0,), TIMELINE, hosts, bandwidth),
        Experiment("straggler", ("vgg19",), (1.0,), MAIN, hosts, bandwidth, straggler=1.3),
        Experiment("tensors", TENSOR_COUNTS, (1.0,), TENSORS, 2, bandwidth),
        Experiment("real", ("digits",), (1.0,), MAIN, hosts, bandwidth),
    ]


def most_s(steps, compute_s):
    """Returns more seconds than these steps take under any system."""
    return steps * (compute_s + _SLOW_COMMUNICATION_S)


def names_of_full():
    """Lists the names of the experiments of `full`, once each."""
    return list(dict.fromkeys(each.name for each in full(4, GIGABIT)))


def scale_of(model, hosts, link_bytes_per_s):
    """Returns the factor by which a model is divided to have `COMMUNICATION_S` of communication."""
    size = sum(layer.bytes for layer in models.load(model).layers)
    return bounds.communication_s(size, hosts, link_bytes_per_s) / COMMUNICATION_S
