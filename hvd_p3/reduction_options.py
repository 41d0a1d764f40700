"""The arguments that optimizers and tapes have in common, and their checks."""

import dataclasses
import typing
import warnings

import horovod.tensorflow as horovod
import keras
import tensorflow as tf

from hvd_p3 import compression, process


@dataclasses.dataclass(frozen=True)
class ReductionOptions:
    """How gradients are reduced.

    Args:
        name: str. The same on all ranks. Part of the tensors' group in errors.
        op: `hvd_p3.Average`, `hvd_p3.Sum` or `hvd_p3.Adasum`.
        gradient_predivide_factor: float > 0. Divides before the reduction and multiplies after it.
        sparse_as_dense: bool. Whether sparse gradients are made dense before the reduction.
        compression: A compressor, see `compression`.
        process_set: `ProcessSet` whose ranks reduce together.
        scale_local_gradients: bool. Whether gradients of local variables are divided by the size of
            the process set.

    Raises:
        ValueError: If an argument is out of range, or hvd_p3 is not initialised.
    """

    name: str
    op: int = horovod.Average
    gradient_predivide_factor: float = 1.0
    sparse_as_dense: bool = False
    compression: typing.Any = compression.Compression.none
    process_set: horovod.ProcessSet = horovod.global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self):
        if self.op not in (horovod.Average, horovod.Sum, horovod.Adasum):
            raise ValueError(
                f"op must be hvd_p3.Average, hvd_p3.Sum or hvd_p3.Adasum. Received: op={self.op!r}"
            )
        if not self.gradient_predivide_factor > 0:
            raise ValueError(
                "gradient_predivide_factor must be above 0. Received: "
                f"gradient_predivide_factor={self.gradient_predivide_factor}"
            )
        if self.gradient_predivide_factor != 1.0 and self.op != horovod.Average:
            raise ValueError(
                "gradient_predivide_factor needs op=hvd_p3.Average. Received: "
                f"gradient_predivide_factor={self.gradient_predivide_factor}, op={self.op!r}"
            )
        compression.check(self.compression)
        check_process_set(self.process_set)
        if self.op == horovod.Adasum:
            self._check_adasum()

    def _check_adasum(self):
        if not self.is_of_all_ranks():
            raise ValueError(
                "op=hvd_p3.Adasum needs the process set of all ranks; leave process_set out. "
                f"Received: process_set={self.process_set}"
            )
        size = process.size()
        if not horovod.check_num_rank_power_of_2(size):
            raise ValueError(
                "op=hvd_p3.Adasum needs a number of ranks that is a power of two; use op="
                f"hvd_p3.Average. Received: {size} ranks"
            )
        if size > 1 and not horovod.mpi_enabled():
            raise ValueError(
                "op=hvd_p3.Adasum needs MPI; launch with horovodrun --mpi, or use op="
                "hvd_p3.Average. Received: Horovod on Gloo"
            )

    def description(self):
        """What ranks must agree on beside the tensors, as text."""
        ops = {horovod.Average: "Average", horovod.Sum: "Sum", horovod.Adasum: "Adasum"}
        compressor = self.compression
        name = getattr(compressor, "__name__", type(compressor).__name__)
        return (
            f"op={ops[self.op]}, gradient_predivide_factor={self.gradient_predivide_factor:g}, "
            f"sparse_as_dense={self.sparse_as_dense}, compression={name}"
        )

    def size(self):
        """The number of ranks that reduce together, on ranks outside of the process set too."""
        return process.size() if self.is_of_all_ranks() else len(self.process_set.ranks)

    def is_of_all_ranks(self):
        return self.process_set.process_set_id == horovod.global_process_set.process_set_id


def check_process_set(process_set):
    """Raises `ValueError` unless `process_set` is a process set that Horovod knows now."""
    if not isinstance(process_set, horovod.ProcessSet):
        raise ValueError(
            "process_set must be a horovod.tensorflow.ProcessSet. "
            f"Received: process_set={process_set!r}"
        )
    if process_set.process_set_id is None:
        raise ValueError(
            "process_set is not registered. Give it to hvd_p3.init(process_sets=[...]), or add it "
            "with add_process_set; for all ranks leave process_set out. "
            f"Received: process_set={process_set}"
        )


def check_without_effect(device_dense, device_sparse, num_groups, groups):
    """Checks arguments of Horovod that change nothing here.

    Collectives run where the gradient is, and gradients share messages by priority.
    """
    for name, device in (("device_dense", device_dense), ("device_sparse", device_sparse)):
        if not isinstance(device, str):
            raise ValueError(
                f"{name} must be a str, such as '/cpu:0' or ''. It has no effect: gradients are "
                f"reduced where they are. Received: {name}={device!r}"
            )
    if num_groups != 0:
        warnings.warn("num_groups is deprecated; use groups.", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if not (groups is None or _is_count(groups) or _are_lists_of_variables(groups)):
        raise ValueError(
            "groups must be an integer of at least 0, or a list of lists of variables. It has no "
            f"effect: gradients share messages by priority. Received: groups={groups!r}"
        )


def _is_count(groups):
    return isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0


def _are_lists_of_variables(groups):
    return isinstance(groups, (list, tuple)) and all(
        isinstance(group, (list, tuple))
        and all(isinstance(each, (keras.Variable, tf.Variable)) for each in group)
        for group in groups
    )
