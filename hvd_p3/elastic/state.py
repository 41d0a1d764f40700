"""State of training that can be committed, restored, and brought to all ranks."""

import copy

import horovod.common.elastic as horovod_elastic
import keras

from hvd_p3 import collectives, process
from hvd_p3.settling import settle
from hvd_p3.variables import native_variable


class ObjectState(horovod_elastic.ObjectState):
    """Python objects as attributes, with a committed copy of each.

    `commit()` or `save()` copies the attributes, `restore()` sets them to the last copy, and
    `sync()`, called on all ranks, gives all ranks those of rank 0.

    Args:
        bcast_object: Optional function that gives all ranks an object of rank 0. By default
            `hvd_p3.broadcast_object`.
        get_rank: Optional function that returns this rank. By default `hvd_p3.rank`.
        **kwargs: The objects by attribute. They must be able to be pickled and deep-copied.

    Example:

    ```python
    state = hvd_p3.elastic.ObjectState(epoch=0, best=[])
    state.best.append(0.5)
    state.restore()  # state.best is [] again
    ```
    """

    def __init__(self, bcast_object=None, get_rank=None, **kwargs):
        super().__init__(
            bcast_object=bcast_object or collectives.broadcast_object,
            get_rank=get_rank or process.rank,
            **copy.deepcopy(kwargs),
        )

    def save(self):
        """Copies the attributes."""
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def sync(self):
        """Gives all ranks the attributes of rank 0, and copies them. Call on all ranks."""
        self.save()
        super().sync()

    def check_host_updates(self):
        """Does nothing: the hosts of the job do not change."""

    def _set_attrs(self):
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))


class TensorFlowState(ObjectState):
    """Variables, and Python objects as attributes, with a committed copy of each in host memory.

    Reading the variables settles updates that overlapped mode has not applied yet.

    Args:
        variables: Iterable of Keras or TensorFlow variables, in the same order on all ranks.
        session: Must be `None`; for TensorFlow 1 in Horovod.
        **kwargs: As in `ObjectState`.

    Raises:
        ValueError: If hvd_p3 is not initialised, there are no variables, or a session is given.

    Example:

    ```python
    state = hvd_p3.elastic.TensorFlowState(variables=[weights], step=0)
    state.commit()
    ```
    """

    def __init__(self, variables=None, session=None, **kwargs):
        process.current()
        if session is not None:
            raise ValueError(
                "TensorFlowState takes no session: TensorFlow 2 has none. "
                f"Received: session={session!r}"
            )
        self.variables = list(variables or ())
        if not self.variables:
            raise ValueError(
                "TensorFlowState needs variables: TensorFlow 2 has no list of all variables. "
                f"Received: variables={variables!r}"
            )
        self._save_variables()
        super().__init__(**kwargs)

    def save(self):
        """Copies the variables and attributes."""
        self._save_variables()
        super().save()

    def restore(self):
        """Sets the variables and attributes to their last copies."""
        for variable, value in zip(self._tracked(), self._saved_values, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self):
        """Gives all ranks the values of rank 0, and copies them. Call on all ranks."""
        collectives.broadcast_variables(self._tracked(), root_rank=0)
        self._save_variables()
        super().sync()

    def _tracked(self):
        """The variables, as TensorFlow variables."""
        return [native_variable(variable) for variable in self.variables]

    def _save_variables(self):
        settle(self._tracked())
        self._saved_values = [variable.numpy() for variable in self._tracked()]


class KerasState(TensorFlowState):
    """A model and its optimizer, and Python objects as attributes, with a committed copy of each.

    Reading the weights settles updates that overlapped mode has not applied yet, so a commit at
    every batch takes the overlap away.

    Args:
        model: `keras.Model` that is built.
        optimizer: Optional `keras.optimizers.Optimizer`. By default that of the compiled model. It
            is built if it is not.
        **kwargs: As in `ObjectState`.

    Raises:
        ValueError: If hvd_p3 is not initialised, the model is not built, or there is no optimizer.

    Example:

    ```python
    state = hvd_p3.elastic.KerasState(model, epoch=0, batch=0)
    state.sync()
    ```
    """

    def __init__(self, model, optimizer=None, **kwargs):
        if not model.built:
            raise ValueError(
                "KerasState needs a model that is built. Call model.build(input_shape), or the "
                f"model on a batch. Received: model '{model.name}'"
            )
        optimizer = optimizer or getattr(model, "optimizer", None)
        if optimizer is None:
            raise ValueError(
                "KerasState needs an optimizer. Compile the model, or pass optimizer=... "
                f"Received: model '{model.name}', optimizer=None"
            )
        if not optimizer.built:
            with keras.name_scope(optimizer.name, caller=optimizer):
                optimizer.build(model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        super().__init__(variables=[*model.variables, *optimizer.variables], **kwargs)
