"""Keras and TensorFlow variables, treated alike."""

import keras


def native_variable(variable):
    """The TensorFlow variable of a Keras variable; anything else as it is. Accesses no value."""
    return variable._value if isinstance(variable, keras.Variable) else variable


def resource_of(variable):
    """The resource of a `tf.Variable`, as the property `handle` has it, without running a guard."""
    return vars(variable)["_handle"]


def path_of(variable):
    """The path of a Keras variable, or the name of a TensorFlow variable or tensor."""
    path = getattr(variable, "path", None) or getattr(variable, "name", None)
    return path or "tensor"  # eager tensors have no name
