"""Profiles the model of a training program: runs the program up to its first `model.fit`."""

import contextlib
import dataclasses
import runpy
import sys

import keras
import tensorflow as tf

from hvd_p3 import process
from hvd_p3.planner.all_reduce import measure_all_reduce
from hvd_p3.planner.inputs import first_batch
from hvd_p3.planner.measuring import profile
from hvd_p3_tools.planner.errors import PlannerError


class _Profiled(BaseException):
    """Ends the program at its first `fit`. No `except Exception` of the program stops it."""


def profile_script(path, arguments, batch=None):
    """Runs a program until it calls `model.fit`, and measures what it would train.

    In a job of several ranks, all-reduces are measured too. Nothing is trained.

    Args:
        path: str, of the program.
        arguments: list of str, its command line.
        batch: int; default: that of the call of `fit`. Another one than that of data that come in
            batches is an error.

    Returns:
        `hvd_p3_tools.planner.profile.Profile`.

    Raises:
        PlannerError: If the program ends without a call of `fit`, cannot be read, or has data in
            batches of another size.
        Exception: What the program raises.
    """
    found, errors = [], []

    def fit(model, x=None, y=None, batch_size=None, *positional, **keywords):
        shuffle = keywords.get("shuffle", True)
        try:
            inputs, dataset = first_batch(x, y, batch_size, shuffle, batch)
            size = tf.nest.flatten(inputs)[0].shape[0]
            found.append(profile(model, size, inputs, dataset))
        except PlannerError as error:  # not for an `except Exception` of the program
            errors.append(error)
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
    if errors:
        raise errors[0]
    if not found:
        raise PlannerError(
            f"{path} ended without a call of model.fit; use hvd_p3.planner.profile(model, batch) "
            "in a program with a training loop of its own"
        )
    if process.is_initialized() and process.size() > 1:
        return dataclasses.replace(found[0], all_reduce=measure_all_reduce())
    return found[0]
