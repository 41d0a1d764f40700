"""Profiles the model of a training program: runs the program up to its first `model.fit`."""

import contextlib
import dataclasses
import runpy
import sys

import keras
import tensorflow as tf

from hvd_p3 import process
from hvd_p3.planner.all_reduce import measure_all_reduce
from hvd_p3.planner.measuring import profile
from hvd_p3_tools.planner.errors import PlannerError

_KERAS_BATCH = 32  # what `fit` takes if it is told nothing


class _Profiled(BaseException):
    """Ends the program at its first `fit`. No `except Exception` of the program stops it."""


def profile_script(path, arguments, batch=None):
    """Runs a program until it calls `model.fit`, and measures what it would train.

    In a job of several ranks, all-reduces are measured too. Nothing is trained.

    Args:
        path: str, of the program.
        arguments: list of str, its command line.
        batch: int; default: that of the call of `fit`.

    Returns:
        `hvd_p3_tools.planner.profile.Profile`.

    Raises:
        PlannerError: If the program ends without a call of `fit`, or cannot be read.
        Exception: What the program raises.
    """
    found = []

    def fit(model, x=None, y=None, batch_size=None, *positional, **keywords):
        inputs, dataset = _first_batch(x, batch or batch_size or _KERAS_BATCH)
        size = tf.nest.flatten(inputs)[0].shape[0]
        found.append(profile(model, size, inputs, dataset))
        raise _Profiled

    original, before = keras.Model.fit, sys.argv
    keras.Model.fit = fit
    sys.argv = [path, *arguments]
    try:
        with contextlib.suppress(_Profiled):
            runpy.run_path(path, run_name="__main__")
    except OSError as error:
        if error.filename != path:
            raise
        raise PlannerError(f"cannot read the program {path}: {error.strerror}") from None
    finally:
        keras.Model.fit, sys.argv = original, before
    if not found:
        raise PlannerError(
            f"{path} ended without a call of model.fit; use hvd_p3.planner.profile(model, batch) "
            "in a program with a training loop of its own"
        )
    if process.is_initialized() and process.size() > 1:
        return dataclasses.replace(found[0], all_reduce=measure_all_reduce())
    return found[0]


def _first_batch(x, batch):
    """Returns the inputs of a batch, and the dataset that it is from, if it is one."""
    if isinstance(x, tf.data.Dataset) or hasattr(x, "__next__"):
        first, dataset = next(iter(x)), x
    elif isinstance(x, keras.utils.PyDataset):
        first, dataset = x[0], None
    else:
        return tf.nest.map_structure(lambda each: tf.convert_to_tensor(each[:batch]), x), None
    inputs, _, _ = keras.utils.unpack_x_y_sample_weight(first)
    return inputs, dataset
