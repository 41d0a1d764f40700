"""Momentum correction: keeps the velocity in proportion to a learning rate that changes.

The velocity of momentum SGD, `v = momentum * v - learning_rate * gradient`, contains the learning
rates of past steps. When the rate changes, Goyal et al. (2017), "Accurate, Large Minibatch SGD",
section 3, multiply `momentum` by new rate / old rate in the next step. Keras makes `momentum` a
constant of the traced step, so here the step multiplies the velocity itself by that factor before
the update, which is the same. The factor is a variable that callbacks set; the update that has used
it sets it back to 1.

With Nesterov momentum the look-ahead uses the velocity of the new rate, and is not corrected again.
"""

import keras
import tensorflow as tf

from hvd_p3 import process, subclassing
from hvd_p3.loss_scaling import innermost

# The attribute of an optimizer with the factor for the next update: a tf.Variable, or in a late
# update a tensor with the factor of its step.
FACTOR = "_hvd_p3_velocity_factor"

# Optimizers whose velocity contains learning rates, and their attribute with the velocities.
_VELOCITIES = {keras.optimizers.SGD: "momentums", keras.optimizers.RMSprop: "_momentums"}


def applies_to(optimizer):
    """Returns whether an optimizer has velocities that contain learning rates."""
    optimizer = innermost(optimizer)
    return _attribute(optimizer) is not None and optimizer.momentum > 0


def is_enabled(optimizer):
    """Returns whether functions that are traced from now on correct the velocities."""
    return FACTOR in vars(optimizer)


def enable(optimizer):
    """Makes functions traced from now on correct the velocities.

    Args:
        optimizer: An optimizer that `applies_to` accepts.

    Returns:
        bool. Whether it was off before, so that training steps must be traced anew.
    """
    optimizer = innermost(optimizer)
    if is_enabled(optimizer):
        return False
    # On the host, where overlapped mode reads it. On one rank XLA may compile the step, and takes
    # variables of its own device only.
    alone = process.current().reduction == process.NOT_NEEDED
    with tf.init_scope(), tf.device(None if alone else "CPU:0"):
        # Not tracked by the optimizer: it is no part of saved files.
        vars(optimizer)[FACTOR] = tf.Variable(1.0, trainable=False, dtype=tf.float64)
    subclassing.mix_in(optimizer, _CorrectsVelocities)
    return True


def request(optimizer, factor):
    """Has the next update multiply the velocities by a factor, besides those requested before.

    Args:
        optimizer: An optimizer for which correction is enabled.
        factor: float. New learning rate / old learning rate.
    """
    variable = vars(innermost(optimizer))[FACTOR]
    variable.assign(variable * factor)


def factor(optimizer):
    """The factor for the next update, as a tensor of float64."""
    return tf.convert_to_tensor(vars(optimizer).get(FACTOR, 1.0), tf.float64)


def correct(optimizer, variables=None):
    """Multiplies velocities by the factor.

    Args:
        optimizer: An optimizer for which correction is enabled and that is built.
        variables: Optional list of trainable variables. By default the velocities of all.
    """
    velocities = getattr(optimizer, _attribute(optimizer))
    if variables is not None:
        velocities = [velocities[optimizer._get_variable_index(each)] for each in variables]
    by = getattr(optimizer, FACTOR)

    def multiply():
        for velocity in velocities:
            if velocity is not None:
                optimizer.assign(velocity, velocity * tf.cast(by, velocity.dtype))

    # Most steps have no change of the learning rate to correct for.
    tf.cond(tf.not_equal(by, 1.0), multiply, lambda: None)


def used(optimizer):
    """Sets the factor back to 1 after an update has used it."""
    if is_enabled(optimizer):
        vars(optimizer)[FACTOR].assign(1.0)


def _attribute(optimizer):
    for optimizer_class, attribute in _VELOCITIES.items():
        if isinstance(optimizer, optimizer_class):
            return attribute
    return None


class _CorrectsVelocities:
    """Mixed into the class of an optimizer for which correction is enabled."""

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # One made by `from_config` of this class has no factor. Overlapped mode calls without
        # variables for what belongs to none.
        if FACTOR in vars(self) and trainable_variables:
            if isinstance(getattr(self, FACTOR), tf.Variable):
                # All, since an update of other variables in the same step finds a factor of 1.
                correct(self)
                used(self)
            else:
                correct(self, trainable_variables)
        return super()._backend_update_step(grads, trainable_variables, learning_rate)
