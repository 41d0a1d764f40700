"""Changes the class of an object in place, so that it keeps its identity, state and type name."""

import functools
import types


def mix_in(instance, mixin):
    """Makes an object an instance of a class that has `mixin` in front of its own class.

    The new class has the name and module of the object's class: error messages, saved models and
    `isinstance` see what they saw before. Does nothing if the object has the mixin already.
    """
    if not isinstance(instance, mixin):
        instance.__class__ = _mixed(mixin, type(instance))


@functools.cache
def _mixed(mixin, base):
    # new_class finds the metaclass of TensorFlow's variables and functions.
    mixed = types.new_class(base.__name__, (mixin, base))
    mixed.__module__ = base.__module__
    mixed.__doc__ = base.__doc__
    return mixed
