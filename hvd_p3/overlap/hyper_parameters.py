"""The hyper-parameters that an optimizer keeps as Python values, such as momentum.

TensorFlow makes them constants of the functions that it traces. An update that is applied after
its step must see those with which the step was traced, whatever they are by then.
"""

import copy
import numbers

import keras
import numpy as np

from hvd_p3 import momentum_correction

_SIMPLE_TYPES = (numbers.Number, np.generic, str, type(None))
_NO_HYPER_PARAMETERS = ("built", "name")


class HyperParameters:
    """The Python hyper-parameters of an optimizer at one time.

    Args:
        optimizer: The optimizer.
        version: int. Its number among those of this optimizer.
    """

    def __init__(self, optimizer, version):
        self.version = version
        self.values = {
            name: value
            for name, value in vars(optimizer).items()
            if isinstance(value, _SIMPLE_TYPES)
            and not name.startswith("_")
            and name not in _NO_HYPER_PARAMETERS
        }
        self.values["_momentum_correction"] = momentum_correction.is_enabled(optimizer)
        # Variables without weight decay, as `exclude_from_weight_decay` keeps them.
        excluded = {"_exclude_from_weight_decay": set(), "_exclude_from_weight_decay_pattern": None}
        for name, default in excluded.items():
            self.values[name] = copy.copy(vars(optimizer).get(name, default))
        self.caches = {"_exclude_from_weight_decay_cache": {}}
        # Keras decides by its kind (variable, schedule, function) what to do with the rate.
        self.learning_rate_object = optimizer._learning_rate
        learning_rate = optimizer._get_current_learning_rate()
        # A Python number is a constant of the trace like the others; a tensor or variable travels
        # with each gradient, and keeps its dtype, since Keras rounds in it.
        is_constant = isinstance(learning_rate, (int, float))
        self.learning_rate = learning_rate if is_constant else None
        self.learning_rate_dtype = (
            None if is_constant else keras.backend.standardize_dtype(learning_rate.dtype)
        )

    def difference(self, other):
        """Says in words what `other` has changed, or returns `None`."""
        for name, value in self.values.items():
            if name in other.values and other.values[name] != value:
                other_value = other.values[name]
                name = name.removeprefix("_")
                return f"{name} was changed from {value!r} to {other_value!r}"
        if self.values.keys() != other.values.keys():
            changed = sorted(self.values.keys() ^ other.values.keys())
            return f"{', '.join(changed)} was changed"
        if self.learning_rate_object is not other.learning_rate_object:
            return "learning_rate was replaced"
        if self._rate() != other._rate():
            return f"learning_rate was changed from {self._rate()} to {other._rate()}"
        return None

    def _rate(self):
        if self.learning_rate is not None:
            return str(self.learning_rate)
        return f"a tensor of {self.learning_rate_dtype}"
