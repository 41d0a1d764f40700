"""Which optimizers can be overlapped: those that update each variable by itself.

In overlapped mode a variable is updated as soon as its own gradient is reduced, while others are
still on the wire. That gives the weights of immediate mode if, and only if, the update of one
variable needs neither the gradient nor the state of another.
"""

import keras

from hvd_p3 import reduction
from hvd_p3.overlap import guarded_variable

# Optimizers whose update_step is known to read and write one variable and its state only.
_SEPARABLE = (keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW)

# What a subclass must not replace, since overlapped mode calls it for one variable at a time.
_SEPARABLE_METHODS = (
    "apply",
    "_backend_apply_gradients",
    "_backend_update_step",
    "_apply_weight_decay",
    "_clip_gradients",
)


def state_of_each_variable(optimizer):
    """Finds the optimizer's state that belongs to each trainable variable.

    Keras optimizers keep their state in lists that run parallel to the trainable variables.

    Returns:
        A list, for each trainable variable, of its list of state variables; or `None` if there is
        state besides iterations and learning rate that belongs to no single variable.
    """
    count = len(optimizer._trainable_variables)
    unclaimed = {
        id(variable)
        for variable in optimizer._variables
        if variable is not optimizer._iterations and variable is not optimizer._learning_rate
    }
    states = [[] for _ in range(count)]
    for name, candidates in vars(optimizer).items():
        if name == "_trainable_variables" or not isinstance(candidates, (list, tuple)):
            continue
        if len(candidates) != count:
            continue
        for state, candidate in zip(states, candidates, strict=True):
            if id(candidate) in unclaimed:
                unclaimed.discard(id(candidate))
                state.append(candidate)
    return None if unclaimed else states


def reason_for_immediate_mode(optimizer, wrapped_class):
    """Says why an optimizer cannot be overlapped.

    Args:
        optimizer: A built, distributed optimizer.
        wrapped_class: The Keras class that it was before it was distributed.

    Returns:
        A str for the user, or `None` if it can be overlapped.
    """
    name = wrapped_class.__name__
    if wrapped_class not in _SEPARABLE:
        return f"{name} is not known to update each variable by itself"
    for method in _SEPARABLE_METHODS:
        if getattr(wrapped_class, method) is not _original(method):
            return f"{name} replaces Keras's {method}"
    if optimizer.global_clipnorm:
        return "global_clipnorm needs all gradients before any update"
    if optimizer.use_ema:
        return "use_ema averages all variables at once"
    if optimizer.gradient_accumulation_steps:
        return "gradient_accumulation_steps updates all variables at once"
    for variable in optimizer._trainable_variables:
        native = reduction.native_variable(variable)
        if not guarded_variable.can_attach(native):
            return f"variable '{variable.name}' is a {type(native).__name__}"
        if getattr(variable, "overwrite_with_gradient", False):
            return f"variable '{variable.path}' is overwritten with its gradient"
    if state_of_each_variable(optimizer) is None:
        return f"this {name} keeps state that belongs to no single variable"
    return None


def _original(method):
    return getattr(keras.optimizers.Optimizer, method)
