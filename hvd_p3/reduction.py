"""Reduces the gradients of one optimizer: their names, priorities, slots and handles."""

import itertools

import horovod.tensorflow as horovod
import tensorflow as tf

from hvd_p3 import forward_order, ops, process, sparse_gradients, tensor_names, xla
from hvd_p3.variables import native_variable, path_of

_counter = itertools.count()


def check_arguments(op, gradient_predivide_factor):
    """Raises `ValueError` if arguments of a public function are out of range."""
    if op not in (horovod.Average, horovod.Sum):
        raise ValueError(f"op must be hvd_p3.Average or hvd_p3.Sum. Received: op={op!r}")
    if not gradient_predivide_factor > 0:
        raise ValueError(
            "gradient_predivide_factor must be above 0. Received: "
            f"gradient_predivide_factor={gradient_predivide_factor}"
        )
    if gradient_predivide_factor != 1.0 and op != horovod.Average:
        raise ValueError(
            "gradient_predivide_factor needs op=hvd_p3.Average. Received: "
            f"gradient_predivide_factor={gradient_predivide_factor}, op={op!r}"
        )


class GradientReducer:
    """Declares and reduces the gradients of an optimizer's variables, or of a tape's sources.

    A variable is known by its index in the list with which the optimizer was built, which is the
    same on all ranks. Used by one thread at a time, the one that traces or runs eagerly.

    Args:
        name: str. The same on all ranks. A number is added in the order of first use.
        op: `hvd_p3.Average` or `hvd_p3.Sum`.
        gradient_predivide_factor: float. Divides before the reduction and multiplies after it.
        sparse_as_dense: bool. Whether sparse gradients are made dense before the reduction.
    """

    def __init__(self, name, op, gradient_predivide_factor, sparse_as_dense):
        self.name = name
        self.op = op
        self.prescale = 1.0 / gradient_predivide_factor
        self.postscale = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.slots = None
        self.priorities = None
        self._names = None
        self._shapes = None
        self._process = None
        # In this process's engine: tuple of indices -> ({index: handle}, lists of fused indices).
        self._declared = {}

    def build(self, variables):
        """Makes the slots; `variables` is the whole list of the optimizer. Repeated calls do
        nothing."""
        if self.slots is not None:
            return
        # The number is part of the name, so that two optimizers of one name do not collide. It
        # counts those in use, so one that only some ranks make and never use does no harm.
        self.name = f"{self.name}.{next(_counter)}"
        paths = [path_of(variable) for variable in variables]
        self._names = tensor_names.rank_independent(paths)
        self._shapes = [tf.TensorShape(variable.shape) for variable in variables]
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
        return self._declare(gradients)[0]

    def fused_with(self, gradients):
        """Returns which gradients are reduced as one message with each.

        A step must push all of them or none: if it failed between two pushes, the reduction of the
        first would wait forever.

        Args:
            gradients: dict of variable index to dense gradient tensor.

        Returns:
            dict of variable index to the list of gradients of its message, including its own.
        """
        return {
            index: [gradients[each] for each in fused]
            for fused in self._declare(gradients)[1]
            for index in fused
        }

    def _declare(self, gradients):
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
                    self._order(index),
                    self.op,
                    self.prescale,
                    self.postscale,
                )
                for index in indices
            ]
            # A number, not the indices: ranks whose gradients differ must meet, to get an error.
            group = f"{self.name}.{len(self._declared)}"
            handles = ops.declare_group(group, specs)
            fused = [[indices[each] for each in fused] for fused in ops.fused_tensors(specs)]
            self._declared[indices] = (dict(zip(indices, handles, strict=True)), fused)
        return self._declared[indices]

    def _order(self, index):
        """The engine's priority: that of the forward pass, or the order of backpropagation."""
        if process.current().config.priorities:
            return self.priorities[index]
        return max(self.priorities) - self.priorities[index]

    def split(self, gradients):
        """Parts gradients into those that are reduced dense and those that stay sparse.

        Args:
            gradients: dict of variable index to tensor or `tf.IndexedSlices`.

        Returns:
            Two dicts: of dense tensors, and of `tf.IndexedSlices`.
        """
        dense, sparse = {}, {}
        for index, gradient in gradients.items():
            if isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense:
                sparse[index] = gradient
            else:
                dense[index] = tf.convert_to_tensor(gradient)
        return dense, sparse

    def reduce(self, gradients):
        """Reduces gradients within the step (immediate mode).

        Args:
            gradients: dict of variable index to tensor or `tf.IndexedSlices`.

        Returns:
            dict of variable index to reduced tensor or `tf.IndexedSlices`.
        """
        xla.check_not_compiling()
        dense, sparse = self.split(gradients)
        return {**self._reduce_dense(dense), **self.reduce_sparse(sparse)}

    def reduce_sparse(self, gradients):
        """Reduces sparse gradients within the step.

        Args:
            gradients: dict of variable index to `tf.IndexedSlices`.

        Returns:
            dict of variable index to `tf.IndexedSlices`.
        """
        average = 1.0 / process.size() if self.op == horovod.Average else 1.0
        reduced = {}
        for index, gradient in gradients.items():

            def reduce_dense(whole, index=index):
                return self._reduce_dense({index: whole})[index]

            reduced[index] = sparse_gradients.reduce_rows(
                gradient,
                self._shapes[index],
                self._horovod_name(index),
                self.prescale,
                self.postscale * average,
                reduce_dense,
            )
        return reduced

    def _horovod_name(self, index):
        # Horovod ignores what is in front of a slash: Keras puts the numbers of layers and
        # optimizers, which may differ between ranks, into name scopes.
        return f"{self.name.replace('/', '.')}.{index}"

    def _reduce_dense(self, gradients):
        if process.current().reduction == process.HOROVOD:
            return {
                index: horovod.allreduce(
                    gradient,
                    op=self.op,
                    prescale_factor=self.prescale,
                    postscale_factor=self.postscale,
                    name=self._horovod_name(index),
                    ignore_name_scope=True,
                )
                for index, gradient in gradients.items()
            }
        if not gradients:
            return {}
        handles = self.handles(gradients)
        if tf.executing_eagerly():
            return self._reduce_eagerly(gradients, handles)
        ops.note_arrival([self.slots[index] for index in gradients], list(gradients.values()))
        fused = self.fused_with(gradients)
        reduced = {}
        for index, gradient in gradients.items():
            with tf.control_dependencies(fused[index]):
                reduced[index] = ops.all_reduce_slot(self.slots[index], gradient, handles[index])
        return reduced

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
