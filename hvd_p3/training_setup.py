"""What callbacks do to a compiled model before it trains."""

import keras

from hvd_p3 import process
from hvd_p3.distributed_optimizer import is_distributed, make_distributed, state_of


def prepare(model):
    """Makes a compiled model fit for distributed training, before its first step is traced.

    Args:
        model: A compiled `keras.Model`. Nothing happens if its optimizer is not distributed.
    """
    _move_outside_loss_scaling(model)
    optimizer = model.optimizer
    if not is_distributed(optimizer):
        return
    if model.jit_compile and process.current().reduction != process.NOT_NEEDED:
        model.jit_compile = False  # XLA cannot compile the custom ops
        model.make_train_function(force=True)
        # Keras makes them anew when they are needed.
        model.test_function = model.predict_function = None
    # Keras builds the optimizer when it traces the first step. Earlier is better, since what is
    # traced before cannot be overlapped, but only Keras's own step is known to use all variables.
    keras_step = type(model).train_step is keras.Model.train_step
    if model.built and not optimizer.built and keras_step and model.trainable_variables:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(model.trainable_variables)


def overlap_training(model):
    """Turns overlapped mode on for the train function of a compiled model with a built optimizer.

    Returns:
        `None`, or a str that says why training stays in immediate mode.
    """
    state = state_of(model.optimizer)
    was_on = state.overlapped is not None
    reason = state.turn_overlap_on()
    if reason is None:
        if not was_on:
            model.make_train_function(force=True)  # functions traced so far stay immediate
        state.expect_trace_of(model.train_function)
    return reason


def trace_anew(model):
    """Makes Keras trace the training step of a compiled model anew, before its next step."""
    model.make_train_function(force=True)
    optimizer = model.optimizer
    if is_distributed(optimizer) and state_of(optimizer).overlapped is not None:
        state_of(optimizer).expect_trace_of(model.train_function)


def _move_outside_loss_scaling(model):
    """Distributes the loss scaling that Keras puts around a distributed optimizer instead of it.

    `model.compile` wraps the optimizer in a `LossScaleOptimizer` under the mixed_float16 policy.
    Inside it each rank would decide by its own gradients whether to skip a step.
    """
    outer = model.optimizer
    if not isinstance(outer, keras.optimizers.LossScaleOptimizer) or is_distributed(outer):
        return
    inner = outer.inner_optimizer
    if not is_distributed(inner):
        return
    # The inner one stays distributed, for a model that is compiled with it again; inside a
    # distributed LossScaleOptimizer it applies what is reduced already.
    state = state_of(inner)
    make_distributed(outer, state.reducer, state.aggregation, state.local_variables)
