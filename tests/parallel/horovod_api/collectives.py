"""Horovod's other collectives, and the arguments of its Keras API."""

import horovod.tensorflow as horovod
import keras
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd


def check_capabilities():
    assert hvd.mpi_enabled() and not hvd.gloo_enabled()
    assert hvd.mpi_built() and hvd.gloo_built()
    assert hvd.mpi_threads_supported()
    assert hvd.is_homogeneous()
    for built in (hvd.nccl_built, hvd.cuda_built, hvd.rocm_built, hvd.ddl_built, hvd.ccl_built):
        assert not built(), "this build of Horovod is for processors alone"


def check_collectives_take_what_horovods_keras_api_takes():
    mine = [1.0 + hvd.rank(), 2.0]
    same_bits(hvd.allreduce(mine, "by position"), np.float32([1.5, 2]), "mean of a list")
    same_bits(hvd.allreduce(mine, "sum", False), np.float32([3, 4]), "average=False")
    same_bits(hvd.allreduce(value=mine, average=True), np.float32([1.5, 2]), "average=True")
    same_bits(
        hvd.allreduce(mine, "scaled", None, 2.0, 10.0, hvd.Sum), np.float32([60, 80]), "scales"
    )
    same_bits(hvd.allreduce(np.float64(mine)), np.float64([1.5, 2]), "array of float64")
    same_bits(hvd.allreduce(mine, op=hvd.Max), np.float32([2, 2]), "maximum")
    same_bits(hvd.allgather(value=mine, name="rows"), np.float32([1, 2, 2, 2]), "allgather")
    same_bits(hvd.broadcast(value=mine, root_rank=1, name="b"), np.float32([2, 2]), "broadcast")
    with raises(ValueError, "average"):
        hvd.allreduce(mine, average=True, op=hvd.Sum)
    slices = tf.IndexedSlices(
        tf.constant([[1.0 + hvd.rank()]]), tf.constant([hvd.rank()]), tf.constant([2, 1])
    )
    reduced = hvd.allreduce(slices, name="slices")
    same_bits(reduced.values, np.float32([[0.5], [1.0]]), "values of slices")
    same_bits(reduced.indices, np.int32([0, 1]), "indices of slices")

    @tf.function
    def traced(tensor):
        return hvd.allreduce(tensor, name="traced", op=hvd.Sum)

    same_bits(traced(tf.constant(mine)), np.float32([3, 4]), "in a function")


def check_compression():
    mine = tf.constant([1.0 + hvd.rank(), 1 / 3])
    result = hvd.allreduce(mine, op=hvd.Sum, compression=horovod.Compression.fp16, name="fp16")
    third = np.float32(np.float16(1 / 3))
    same_bits(result, np.float32([3, 2 * third]), "allreduce")
    (result,) = hvd.grouped_allreduce([mine], op=hvd.Sum, compression=horovod.Compression.fp16)
    same_bits(result, np.float32([3, 2 * third]), "grouped allreduce")
    bfloat16 = tf.cast(mine, tf.bfloat16)
    result = hvd.allreduce(bfloat16, op=hvd.Sum, compression=horovod.Compression.fp16)
    assert result.dtype == tf.bfloat16


def check_grouped_collectives():
    for dtype in (tf.float32, tf.bfloat16):
        one = keras.Variable(tf.cast([1.0, 2.0], dtype) + hvd.rank(), dtype=dtype.name)
        other = tf.cast([[4.0 * hvd.rank()]], dtype)
        what = dtype.name
        summed = hvd.grouped_allreduce([one, other], op=hvd.Sum, name=f"{what}.sums")
        same_bits(summed[0], tf.cast([3, 5], dtype), f"first sum, {what}")
        same_bits(summed[1], tf.cast([[4]], dtype), f"second sum, {what}")
        gathered = hvd.grouped_allgather([one, other], name=f"{what}.rows")
        same_bits(gathered[0], tf.cast([1, 2, 2, 3], dtype), f"first rows, {what}")
        same_bits(gathered[1], tf.cast([[0], [4]], dtype), f"second rows, {what}")
        parts = hvd.grouped_reducescatter([one, one], op=hvd.Sum)
        for part in parts:
            same_bits(part, tf.cast([3 if hvd.rank() == 0 else 5], dtype), f"part, {what}")
    assert hvd.grouped_allreduce([]) == []


def check_reducescatter_and_alltoall():
    for dtype in (tf.float32, tf.bfloat16):
        what = dtype.name
        mine = tf.cast([1.0, 3.0], dtype) + 2 * hvd.rank()
        part = hvd.reducescatter(mine, f"{what}.reducescatter")
        same_bits(part, tf.cast([2 if hvd.rank() == 0 else 4], dtype), f"reducescatter, {what}")
        received = hvd.alltoall(mine, name=f"{what}.alltoall")
        same_bits(received, tf.cast([1, 3] if hvd.rank() == 0 else [3, 5], dtype), "alltoall")
        # Rank 0 keeps its two rows and rank 1 sends one to each.
        splits = [2, 0] if hvd.rank() == 0 else [1, 1]
        received, rows = hvd.alltoall(mine, splits, name=f"{what}.splits")
        same_bits(received, tf.cast([1, 3, 3] if hvd.rank() == 0 else [5], dtype), "alltoall")
        assert rows.numpy().tolist() == ([2, 1] if hvd.rank() == 0 else [0, 1])


def check_variables_may_have_other_names_on_other_ranks():
    variables = [
        keras.Variable([1.0 + hvd.rank()], name=f"of_rank_{hvd.rank()}"),
        keras.Variable([1.0 + hvd.rank()], dtype="bfloat16", name=f"half_{hvd.rank()}"),
    ]
    hvd.broadcast_variables(variables, root_rank=1, inplace=True)
    for variable in variables:
        same_bits(variable.numpy(), np.array([2], variable.numpy().dtype), variable.name)


def check_join():
    for step in range(2 if hvd.rank() == 0 else 3):
        total = hvd.allreduce([1.0], op=hvd.Sum, name=f"join.{step}")
        assert float(total[0]) == (2.0 if step < 2 else 1.0)
    assert int(hvd.join()) == 1


def check_global_variables_are_refused():
    with raises(RuntimeError, "hvd_p3.broadcast_variables(", "root_rank=1"):
        hvd.broadcast_global_variables(1)
