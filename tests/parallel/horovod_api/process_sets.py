"""Process sets of `init(process_sets="dynamic")`. checks_reduction.py has sets given to `init`."""

import keras
import numpy as np
import tensorflow as tf
from expect import raises, same_bits

import hvd_p3 as hvd

_SINGLES = [hvd.ProcessSet([0]), hvd.ProcessSet([1])]


def check_collectives_of_process_sets():
    for each in _SINGLES:
        assert hvd.add_process_set(each) is each
    mine, other = _SINGLES[hvd.rank()], _SINGLES[1 - hvd.rank()]
    assert mine.included() and not other.included()
    assert mine.size() == 1 and mine.rank() == 0
    assert hvd.global_process_set.size() == 2
    value = tf.constant([1.0 + hvd.rank()])
    same_bits(hvd.allreduce(value, op=hvd.Sum, process_set=mine, name="alone"), value, "sum")
    same_bits(hvd.allgather(value, process_set=mine, name="alone.rows"), value, "rows")
    variable = keras.Variable(value)
    hvd.broadcast_variables([variable], root_rank=hvd.rank(), process_set=mine)
    same_bits(variable.numpy(), value, "variable")
    with raises(ValueError, "root_rank", f"[{hvd.rank()}]"):
        hvd.broadcast_variables([variable], root_rank=1 - hvd.rank(), process_set=mine)
    assert hvd.broadcast_object("mine", root_rank=hvd.rank(), process_set=mine) == "mine"


def check_process_sets_are_removed_and_added_again():
    first = _SINGLES[0]
    with raises(ValueError, "duplicate"):
        hvd.add_process_set([0])
    assert hvd.remove_process_set(first)
    assert first.process_set_id is None
    assert not hvd.remove_process_set(first)
    assert not hvd.remove_process_set(hvd.global_process_set)
    added = hvd.add_process_set(first)
    assert added is first
    assert added.included() == (hvd.rank() == 0)
    if added.included():
        total = hvd.allreduce(np.float32([5]), op=hvd.Sum, process_set=added, name="added")
        same_bits(total, np.float32([5]), "sum")
