"""Reduces the gradients of one optimizer: their names, priorities, slots and handles."""

import itertools

import horovod.tensorflow as horovod
import keras
import tensorflow as tf

from hvd_p3 import forward_order, ops, process, tensor_names

_counter = itertools.count()


def native_variable(variable):
    """The TensorFlow variable of a Keras variable, without applying a pending update."""
    return variable._value if isinstance(variable, keras.Variable) else variable


class GradientReducer:
    """Declares and reduces the gradients of an optimizer's variables.

    A variable is known by its index in the list with which the optimizer was built, which is the
    same on all ranks.

    Args:
        name: str or `None`. The same on all ranks; by default a number in the order of first use.
        op: `hvd_p3.Average` or `hvd_p3.Sum`.
        prescale: float. Factor before the reduction.
        postscale: float. Factor after it.
    """

    def __init__(self, name, op, prescale, postscale):
        self.name = name or "optimizer"
        self.op = op
        self.prescale = prescale
        self.postscale = postscale
        self.slots = None
        self.priorities = None
        self._names = None
        self._process = None
        self._declared = {}  # tuple of indices -> {index: handle}, in this process's engine

    def build(self, variables):
        """Makes the slots; `variables` is the whole list of the optimizer. Repeated calls do
        nothing."""
        if self.slots is not None:
            return
        # The number is part of the name, so that two optimizers of one name do not collide. It
        # counts those in use, so one that only some ranks make and never use does no harm.
        self.name = f"{self.name}.{next(_counter)}"
        paths = [getattr(variable, "path", variable.name) for variable in variables]
        self._names = tensor_names.rank_independent(paths)
        self.slots = [ops.Slot(f"{self.name}/{index}/{path}") for index, path in enumerate(paths)]

    def record_forward_order(self, variables):
        """Sets the priorities from the function being traced, unless they are set already.

        Args:
            variables: The whole list of the optimizer.
        """
        if self.priorities is not None:
            return
        uses = forward_order.first_uses([native_variable(variable) for variable in variables])
        owners = [forward_order.owner(variable) for variable in variables]
        self.priorities = forward_order.priorities(uses, owners)

    def handles(self, gradients):
        """Returns the engine's handle of each gradient, declaring the group on first use.

        Args:
            gradients: dict of variable index to dense gradient tensor.

        Returns:
            dict of variable index to int handle.
        """
        if self._process is not process.current():
            self._process = process.current()
            self._declared = {}
        indices = tuple(sorted(gradients))
        if indices not in self._declared:
            specs = [
                ops.TensorSpec(
                    self._names[index],
                    gradients[index].dtype,
                    gradients[index].shape,
                    self.priorities[index],
                    self.op,
                    self.prescale,
                    self.postscale,
                )
                for index in indices
            ]
            # A number, not the indices: ranks whose gradients differ must meet, to get an error.
            group = f"{self.name}.{len(self._declared)}"
            self._declared[indices] = dict(
                zip(indices, ops.declare_group(group, specs), strict=True)
            )
        return self._declared[indices]

    def reduce(self, gradients):
        """Reduces gradients within the step (immediate mode).

        Args:
            gradients: dict of variable index to dense gradient tensor.

        Returns:
            dict of variable index to reduced tensor.
        """
        if process.current().reduction == process.HOROVOD:
            return {
                index: horovod.allreduce(
                    gradient,
                    op=self.op,
                    prescale_factor=self.prescale,
                    postscale_factor=self.postscale,
                    name=f"{self.name}/{index}",
                )
                for index, gradient in gradients.items()
            }
        handles = self.handles(gradients)
        if tf.executing_eagerly():
            return self._reduce_eagerly(gradients, handles)
        ops.note_arrival([self.slots[index] for index in gradients], list(gradients.values()))
        return {
            index: ops.all_reduce_slot(self.slots[index], gradient, handles[index])
            for index, gradient in gradients.items()
        }

    def _reduce_eagerly(self, gradients, handles):
        """Pushes all gradients before it waits for the first: eagerly, one op would wait for its
        own result while the members of its fused slice are not even pushed."""
        for index, gradient in gradients.items():
            ops.push(self.slots[index], gradient, [], handles[index])
        reduced = {}
        failure = None
        for index, gradient in gradients.items():
            try:
                reduced[index], _, _ = ops.pull(
                    self.slots[index], gradient.dtype, gradient.shape, []
                )
            except tf.errors.OpError as error:
                failure = failure or error  # the other slots are pulled all the same, to be free
        if failure is not None:
            raise failure
        return reduced


def dense(gradient):
    """The gradient as a dense tensor."""
    return tf.convert_to_tensor(gradient)
