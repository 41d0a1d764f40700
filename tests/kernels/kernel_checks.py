"""Checks of the ops' kernels on a simulated device: kernel_checks.py LIBRARY OUTPUT.json

A program of its own: the library registers the ops that hvd_p3 registers too. Each function whose
name begins with `check_` starts with an engine that nothing was pushed to. Writes the traceback of
each check to the file, or "".
"""

import ctypes
import json
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import tensorflow as tf

PATIENCE_S = 60  # what takes longer counts as hanging
LONG_ENOUGH_S = 0.2  # for what must not happen to happen
GRADIENT = [1.5, -2.25, 3.0, 4.75]
OTHER_GRADIENT = [8.0, 7.0, 6.0, 5.0]


class Simulation:
    """The library's functions, see simulation.cc."""

    def __init__(self, path):
        self.ops = tf.load_op_library(path)
        library = ctypes.CDLL(path)
        library.simulation_declare.restype = ctypes.c_int64
        library.simulation_declare.argtypes = [ctypes.c_char_p, ctypes.c_int64]
        library.simulation_enqueued_reductions.restype = ctypes.c_int64
        library.simulation_waits.restype = ctypes.c_int64
        library.simulation_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self._library = library
        self._copied = []  # the compute stream may still use them when a check has failed

    def __getattr__(self, name):
        return getattr(self._library, f"simulation_{name}")

    def copy_later(self, target, source):
        """Copies on the compute stream, from array to array."""
        self._copied += [target, source]
        self.copy(target.ctypes.data, source.ctypes.data, source.nbytes)


class Tensor:
    """A tensor with its slot."""

    def __init__(self, simulation, name):
        self._simulation = simulation
        self._ops = simulation.ops
        self._name = name
        self.handle = simulation.declare(name.encode(), len(GRADIENT))
        self.slot = self._ops.hvd_p3_slot(container="hvd-p3", shared_name=name)
        self.arrive = tf.function(self._arrive)

    def push(self, gradient):
        self._ops.hvd_p3_push(self.slot, gradient, [], tensor_handle=self.handle)

    def pull(self, guarded):
        reduced, _, _ = self._ops.hvd_p3_pull(
            self.slot, T=tf.float32, context_types=[], keep_failure=guarded
        )
        return reduced

    def all_reduce(self, gradient):
        return self._ops.hvd_p3_all_reduce(self.slot, gradient, tensor_handle=self.handle)

    def _arrive(self):
        operation = self._ops.hvd_p3_arrival([], slot_names=[self._name])
        operation.graph.control_outputs.append(operation)

    def confirm(self):
        self._ops.hvd_p3_confirm(self.slot)

    def is_pending(self):
        return bool(self._ops.hvd_p3_is_pending(self.slot))

    def push_until_enqueued(self, gradient=None):
        """Pushes, and returns when the reduction is on its stream, where it is held."""
        before = self._simulation.enqueued_reductions()
        self.push(tf.constant(GRADIENT if gradient is None else gradient))
        wait_until(lambda: self._simulation.enqueued_reductions() > before)


class Call(threading.Thread):
    """Something that may block, in a thread."""

    def __init__(self, function, *arguments):
        super().__init__(daemon=True)
        self._function = function
        self._arguments = arguments
        self._result = None
        self._error = None
        self.start()

    def run(self):
        try:
            self._result = self._function(*self._arguments)
        except tf.errors.OpError as error:
            self._error = error

    def assert_blocks(self):
        self.join(LONG_ENOUGH_S)
        assert self.is_alive(), f"returned {self._result}, raised {self._error}"

    def result(self):
        self.join(PATIENCE_S)
        assert not self.is_alive(), "it does not return"
        if self._error is not None:
            raise self._error
        return self._result

    def error(self):
        try:
            result = self.result()
        except tf.errors.OpError as error:
            return error
        raise AssertionError(f"returned {result}")


def wait_until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.001)


def memory_of(tensor):
    """An array in the memory of an eager tensor."""
    return np.asarray(memoryview(tensor))


def assert_used_behind_the_event(simulation, reduced, expected=GRADIENT):
    """What the compute stream does now with an incomplete result finds it complete."""
    used = np.zeros(len(expected), np.float32)
    simulation.copy_later(used, memory_of(reduced))
    assert used.tolist() != expected
    simulation.release_reductions()
    simulation.synchronize()
    assert used.tolist() == expected


def check_gradient_that_is_computed_after_the_push(simulation):
    tensor = Tensor(simulation, "late gradient")
    gradient = tf.zeros(len(GRADIENT))
    computed = np.array(GRADIENT, np.float32)
    simulation.hold_computation()
    simulation.copy_later(memory_of(gradient), computed)
    Call(tensor.push, gradient).result()  # the computation has not even begun
    time.sleep(LONG_ENOUGH_S)
    assert simulation.enqueued_reductions() == 0
    simulation.release_computation()
    assert tensor.pull(guarded=False).numpy().tolist() == GRADIENT


def check_all_reduce_returns_what_is_complete(simulation):
    tensor = Tensor(simulation, "all-reduce")
    simulation.hold_reductions()
    call = Call(tensor.all_reduce, tf.constant(GRADIENT))
    wait_until(lambda: simulation.enqueued_reductions() > 0)
    tensor.arrive()
    call.assert_blocks()
    simulation.release_reductions()
    assert call.result().numpy().tolist() == GRADIENT
    assert simulation.waits() == 0


def check_all_reduce_reports_a_failure_after_it_was_enqueued(simulation):
    tensor = Tensor(simulation, "failing all-reduce")
    simulation.hold_reductions()
    call = Call(tensor.all_reduce, tf.constant(GRADIENT))
    wait_until(lambda: simulation.enqueued_reductions() > 0)
    tensor.arrive()
    simulation.fail_reductions()
    error = call.error()
    assert isinstance(error, tf.errors.UnavailableError)
    assert "injected failure" in error.message
    assert "holds no valid weights" not in error.message
    assert not tensor.is_pending()


def check_pull_without_a_guard_returns_what_is_complete(simulation):
    tensor = Tensor(simulation, "unguarded")
    simulation.hold_reductions()
    tensor.push_until_enqueued()
    tensor.arrive()
    call = Call(tensor.pull, False)
    call.assert_blocks()
    simulation.fail_reductions()
    assert isinstance(call.error(), tf.errors.UnavailableError)


def check_guarded_pull_returns_what_the_device_has_still_to_reduce(simulation):
    tensor = Tensor(simulation, "guarded")
    simulation.hold_reductions()
    tensor.push_until_enqueued()
    tensor.arrive()
    reduced = Call(tensor.pull, True).result()
    assert simulation.waits() == 1
    assert not tensor.is_pending()
    assert_used_behind_the_event(simulation, reduced)
    tensor.confirm()


def check_guarded_pull_that_comes_first_returns_when_it_is_enqueued(simulation):
    tensor = Tensor(simulation, "early pull")
    simulation.hold_reductions()
    simulation.hold_computation()
    tensor.push(tf.constant(GRADIENT))
    tensor.arrive()
    call = Call(tensor.pull, True)
    call.assert_blocks()
    simulation.release_computation()
    reduced = call.result()
    assert simulation.waits() == 1
    assert_used_behind_the_event(simulation, reduced)


def check_stream_does_not_wait_for_a_layer_before_the_forward_pass_is_there(simulation):
    tensor = Tensor(simulation, "later layer")
    simulation.hold_reductions()
    tensor.push_until_enqueued()
    call = Call(tensor.pull, True)
    call.assert_blocks()
    assert simulation.waits() == 0
    tensor.arrive()
    reduced = call.result()
    assert simulation.waits() == 1
    assert_used_behind_the_event(simulation, reduced)
    # The arrival was of that push alone.
    simulation.hold_reductions()
    tensor.push_until_enqueued(OTHER_GRADIENT)
    call = Call(tensor.pull, True)
    call.assert_blocks()
    simulation.release_reductions()
    assert call.result().numpy().tolist() == OTHER_GRADIENT
    assert simulation.waits() == 1


def check_confirm_waits_for_what_was_pulled(simulation):
    tensor = Tensor(simulation, "confirmed")
    tensor.confirm()  # nothing was ever pulled
    simulation.hold_reductions()
    tensor.push_until_enqueued()
    tensor.confirm()  # not pulled yet
    tensor.arrive()
    tensor.pull(guarded=True)
    tensor.push(tf.constant(OTHER_GRADIENT))
    calls = [Call(tensor.confirm), Call(tensor.confirm)]
    for call in calls:
        call.assert_blocks()
    simulation.release_reductions()
    for call in calls:
        call.result()
    assert tensor.pull(guarded=True).numpy().tolist() == OTHER_GRADIENT


def check_reduction_that_fails_after_its_result_was_used(simulation):
    tensor = Tensor(simulation, "lost")
    simulation.hold_reductions()
    tensor.push_until_enqueued()
    tensor.arrive()
    tensor.pull(guarded=True)
    waiting = Call(tensor.confirm)
    waiting.assert_blocks()
    simulation.fail_reductions()
    errors = [waiting.error(), Call(tensor.confirm).error(), Call(tensor.pull, True).error()]
    errors.append(Call(tensor.push, tf.constant(GRADIENT)).error())
    for error in errors:
        assert isinstance(error, tf.errors.UnavailableError)
        assert "'lost' failed after its result was used" in error.message
        assert "holds no valid weights: load a checkpoint" in error.message
        assert "injected failure" in error.message
    assert tensor.is_pending()  # so that guards pull, and report it


def check_reduction_that_fails_before_its_result_is_used(simulation):
    tensor = Tensor(simulation, "kept failure")
    simulation.hold_reductions()
    tensor.push_until_enqueued()
    simulation.fail_reductions()
    for _ in range(2):
        error = Call(tensor.pull, True).error()
        assert isinstance(error, tf.errors.UnavailableError)
        assert "holds no valid weights" not in error.message
    assert tensor.is_pending()
    tensor.confirm()


def run(simulation, check):
    simulation.start()
    try:
        check(simulation)
        return ""
    except Exception:
        return traceback.format_exc()
    finally:
        simulation.stop()


def main(library, output):
    simulation = Simulation(library)
    checks = {name: each for name, each in globals().items() if name.startswith("check_")}
    results = {}
    for name, check in checks.items():
        results[name] = run(simulation, check)
        Path(output).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
