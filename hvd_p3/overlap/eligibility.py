"""Which optimizers can be overlapped: those that update each variable by itself.

In overlapped mode a variable is updated as soon as its own gradient is reduced, while others are
still on the wire. That gives the weights of immediate mode if, and only if, the update of one
variable needs neither the gradient nor the state of another.
"""

import keras
import tensorflow as tf

from hvd_p3.overlap import guarded_variable
from hvd_p3.variables import native_variable, path_of

# Optimizers whose update_step is known to read and write one variable and its state only.
_SEPARABLE = {
    getattr(keras.optimizers, name)
    for name in (
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "Ftrl",
        "Lamb",
        "Lion",
        "Muon",
        "Nadam",
        "RMSprop",
        "SGD",
        "ScheduleFreeAdamW",
    )
    if hasattr(keras.optimizers, name)  # some are younger than the oldest Keras that is supported
}

# State that an optimizer advances once for each step, before it updates variables, by attribute.
# It is advanced in the step, and its value travels with the gradients.
_SHARED_STATE = {keras.optimizers.Nadam: ("_u_product",)}

# What overlapped mode calls for one variable at a time, and the optimizers for which a replacement
# of Keras's common method is known to keep them apart.
_COMMON_METHODS = {
    "apply": (),
    "_backend_apply_gradients": (),
    "_backend_update_step": ("Nadam",),
    "_apply_weight_decay": ("Muon",),
    "_clip_gradients": (),
    "_update_model_variables_moving_average": (),
    "_overwrite_model_variables_with_average_value": (),
}


def state_of_each_variable(optimizer):
    """Finds the optimizer's state that belongs to each trainable variable.

    Keras optimizers keep their state in lists that run parallel to the trainable variables.

    Returns:
        A list, for each trainable variable, of its list of state variables; and the list of state
        variables besides iterations and learning rate that belong to no single variable.
    """
    count = len(optimizer._trainable_variables)
    unclaimed = {
        id(variable): variable
        for variable in optimizer._variables
        if variable is not optimizer._iterations and variable is not optimizer._learning_rate
    }
    states = [[] for _ in range(count)]
    for name, candidates in vars(optimizer).items():
        if name in ("_trainable_variables", "_variables"):
            continue
        if not isinstance(candidates, (list, tuple)) or len(candidates) != count:
            continue
        for state, candidate in zip(states, candidates, strict=True):
            if unclaimed.pop(id(candidate), None) is not None:
                state.append(candidate)
    return states, list(unclaimed.values())


def shared_state(optimizer):
    """Returns the names of attributes with state that is advanced once for each step."""
    for optimizer_class, names in _SHARED_STATE.items():
        if isinstance(optimizer, optimizer_class):
            return names
    return ()


def reason_for_immediate_mode(optimizer, wrapped_class):
    """Says why an optimizer cannot be overlapped.

    Args:
        optimizer: A built, distributed optimizer.
        wrapped_class: The Keras class that it was before it was distributed.

    Returns:
        A str for the user, or `None` if it can be overlapped.
    """
    name = wrapped_class.__name__
    if wrapped_class is keras.optimizers.LossScaleOptimizer:
        return "LossScaleOptimizer looks at all gradients before any update"
    if wrapped_class not in _SEPARABLE:
        return f"{name} is not known to update each variable by itself"
    for method, known in _COMMON_METHODS.items():
        if getattr(wrapped_class, method) is not _common(method) and name not in known:
            return f"{name} replaces Keras's {method}"
    if optimizer.global_clipnorm:
        return "global_clipnorm needs all gradients before any update"
    if optimizer.gradient_accumulation_steps:
        return "gradient_accumulation_steps updates all variables at once"
    for variable in optimizer._trainable_variables:
        native = native_variable(variable)
        if not guarded_variable.can_attach(native):
            kind = type(native).__name__
            return f"variable '{path_of(variable)}' is a {kind}, which cannot be guarded"
        if getattr(variable, "overwrite_with_gradient", False):
            return f"variable '{variable.path}' is overwritten with its gradient"
        constraint = variable.constraint
        if constraint is not None and not type(constraint).__module__.startswith("keras."):
            kind = type(constraint).__name__
            return (
                f"variable '{path_of(variable)}' has the constraint {kind}, which is not Keras's "
                "own and may depend on other variables"
            )
    _, shared = state_of_each_variable(optimizer)
    known_shared = {id(vars(optimizer)[each]) for each in shared_state(optimizer)}
    if any(id(variable) not in known_shared for variable in shared):
        return f"this {name} keeps state that belongs to no single variable"
    for attribute, value in vars(optimizer).items():
        if isinstance(value, (keras.Variable, tf.Variable, tf.Tensor)) and attribute[0] != "_":
            return f"{attribute} is a {type(value).__name__}, which may change before it is used"
    return None


def _common(method):
    return getattr(keras.optimizers.Optimizer, method)
