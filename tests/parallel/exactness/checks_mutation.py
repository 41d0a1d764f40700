"""The exactness table can catch what it is for: rows fail when the protection is switched off."""

import contextlib
from unittest import mock

import rows_models
import rows_optimizers
import table
import tensorflow as tf

from hvd_p3.overlap.late_update import LateUpdates
from hvd_p3.overlap.overlapped_updates import OverlappedUpdates
from hvd_p3.overlap.pending_update import PendingUpdate


@contextlib.contextmanager
def _no_guard_before_reads_in_graphs():
    """Updates are applied when the next gradients are pushed, after the forward pass has read."""
    guard, guard_all = PendingUpdate.guard, OverlappedUpdates.guard_all
    pushing = []

    def guard_if_pushing(pending):
        if pushing or tf.executing_eagerly():
            guard(pending)

    def guard_all_noted(updates):
        pushing.append(True)
        try:
            guard_all(updates)
        finally:
            pushing.pop()

    with (
        mock.patch.object(PendingUpdate, "guard", guard_if_pushing),
        mock.patch.object(OverlappedUpdates, "guard_all", guard_all_noted),
        mock.patch.object(OverlappedUpdates, "unguarded_use", lambda updates: None),
    ):
        yield


@contextlib.contextmanager
def _hyper_parameters_of_now():
    """Updates see the learning rate and iteration of the time at which they are applied."""
    apply = LateUpdates.apply

    def apply_with_context_of_now(updates, index, gradient, context, version):
        apply(updates, index, gradient, updates.context(), version)

    with mock.patch.object(LateUpdates, "apply", apply_with_context_of_now):
        yield


def _fails(row, mutation):
    try:
        with mutation():
            table.run_row(row)
    except AssertionError as error:
        assert "bits differ" in str(error), error
    else:
        raise AssertionError(f"{row.__name__} passed without the protection")


def check_sequential_fails_without_guard():
    _fails(rows_models.row_sequential, _no_guard_before_reads_in_graphs)


def check_shared_layer_fails_without_guard():
    _fails(rows_models.row_shared_layer, _no_guard_before_reads_in_graphs)


def check_tied_weights_fail_without_guard():
    _fails(rows_models.row_tied_weights, _no_guard_before_reads_in_graphs)


def check_subclassed_model_fails_without_guard():
    _fails(rows_models.row_subclassed_with_control_flow, _no_guard_before_reads_in_graphs)


def check_learning_rate_at_each_batch_fails_without_the_context_of_the_step():
    _fails(rows_optimizers.row_learning_rate_changed_at_each_batch, _hyper_parameters_of_now)
