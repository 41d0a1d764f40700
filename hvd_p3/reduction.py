"""Reduces the gradients of one optimizer: their names, priorities, slots and handles."""

import collections
import itertools

import horovod.tensorflow as horovod
import tensorflow as tf

from hvd_p3 import (
    collectives,
    compression,
    forward_order,
    ops,
    process,
    reduction_options,
    sparse_gradients,
    tensor_names,
    xla,
)
from hvd_p3.variables import native_variable, path_of

# For each process set by its id: the number of reducers in use. Ranks agree on the number among
# those of a set, and not beyond it.
_counters = collections.defaultdict(itertools.count)


class GradientReducer:
    """Declares and reduces the gradients of an optimizer's variables, or of a tape's sources.

    A variable is known by its index in the list with which the optimizer was built, which is the
    same on all ranks. Used by one thread at a time, the one that traces or runs eagerly.

    Args:
        options: `ReductionOptions`. A number is added to the name in the order of first use.

    Attributes:
        local_indices: Set of the indices of local variables, whose gradients are not reduced.
        compression: The compressor.
    """

    def __init__(self, options):
        self.options = options
        self.name = options.name
        self.compression = options.compression
        self.local_indices = set()
        self.prescale = 1.0 / options.gradient_predivide_factor
        self.postscale = options.gradient_predivide_factor
        self.slots = None
        self.priorities = None
        self._names = None
        self._shapes = None
        self._process = None
        # In this process's engine: what tells a group from others, see `_declare`, ->
        # ({index: handle}, lists of fused indices).
        self._declared = {}

    def build(self, variables):
        """Makes the slots; `variables` is the whole list of the optimizer. Repeated calls do
        nothing."""
        if self.slots is not None:
            return
        # The number is part of the name, so that two optimizers of one name do not collide. It
        # counts those in use, so one that only some ranks make and never use does no harm.
        set_id = self.options.process_set.process_set_id
        of_set = "" if self.options.is_of_all_ranks() else f"set{set_id}."
        self.name = f"{self.name}.{of_set}{next(_counters[set_id])}"
        paths = [path_of(variable) for variable in variables]
        self._names = tensor_names.rank_independent(paths)
        self._shapes = [tf.TensorShape(variable.shape) for variable in variables]
        self.slots = [
            ops.Slot(f"{self.name}/{index}/{path}", ops.device_of(native_variable(variable)))
            for index, (path, variable) in enumerate(zip(paths, variables, strict=True))
        ]

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

    def reason_for_immediate_mode(self, wire_formats, variables):
        """Says why these gradients cannot be reduced across the end of a step, or returns `None`.

        Args:
            wire_formats: Their `WireFormat`s, as `wire_formats` made them.
            variables: The whole list of the optimizer.
        """
        if self.options.op == horovod.Adasum:
            return "op=hvd_p3.Adasum goes through Horovod's own operations"
        if not self.options.is_of_all_ranks():
            return "gradients of a process set go through Horovod's own operations"
        return compression.reason_for_immediate_mode(self.compression, wire_formats, variables)

    def wire_formats(self, variables):
        """Returns what is sent of the gradients of variables, as a list of `WireFormat`s."""
        return [compression.WireFormat(self.compression, variable) for variable in variables]

    def handles(self, sent):
        """Returns the engine's handle of each gradient, declaring the group on first use.

        Args:
            sent: dict of variable index to what has the dtype and shape that are sent.

        Returns:
            dict of variable index to int handle.
        """
        return self._declare(sent)[0]

    def after_message(self, sent, tensors):
        """Returns what each push must wait for: all gradients of the message that it is a part of.

        A step must push all of them or none: if it failed between two pushes, the reduction of the
        first would wait forever.

        Args:
            sent: dict of variable index to what has the dtype and shape that are sent.
            tensors: dict of variable index to tensor, of a graph that is being traced.

        Returns:
            dict of variable index to a list for `tf.control_dependencies`.
        """
        after = {}
        for fused in self._declare(sent)[1]:
            computed = [tensors[index] for index in fused]
            if len(fused) > 1:
                # One op for the message: with an edge from each tensor to each push, a message of
                # a hundred tensors would have ten thousand.
                with tf.control_dependencies(computed), tf.device(self.slots[fused[0]].device):
                    computed = [tf.no_op()]
            after.update(dict.fromkeys(fused, computed))
        return after

    def _declare(self, sent):
        if self._process is not process.current():
            self._process = process.current()
            self._declared = {}
        indices = sorted(sent)
        key = tuple((index, sent[index].dtype, tuple(sent[index].shape)) for index in indices)
        if key not in self._declared:
            specs = [
                ops.TensorSpec(
                    self._names[index],
                    sent[index].dtype,
                    sent[index].shape,
                    self._order(index),
                    self.options.op,
                    self.prescale,
                    self.postscale,
                )
                for index in indices
            ]
            # A number, not the indices: ranks whose gradients differ must meet, to get an error.
            group = f"{self.name}.{len(self._declared)}"
            handles = ops.declare_group(group, specs, self.options.description())
            fused = [[indices[each] for each in fused] for fused in ops.fused_tensors(specs)]
            self._declared[key] = (dict(zip(indices, handles, strict=True)), fused)
        return self._declared[key]

    def _order(self, index):
        """The engine's priority: that of the forward pass, or the order of backpropagation."""
        if process.current().config.priorities:
            return self.priorities[index]
        return max(self.priorities) - self.priorities[index]

    def split(self, gradients):
        """Parts gradients by how they are reduced.

        Args:
            gradients: dict of variable index to tensor or `tf.IndexedSlices`.

        Returns:
            Three dicts: of dense tensors to reduce; of `tf.IndexedSlices` to reduce; and of
            gradients of local variables, which are not reduced, and scaled already.
        """
        dense, sparse, local = {}, {}, {}
        for index, gradient in gradients.items():
            if index in self.local_indices:
                local[index] = self._local(gradient)
            elif isinstance(gradient, tf.IndexedSlices) and not self.options.sparse_as_dense:
                sparse[index] = gradient
            else:
                dense[index] = tf.convert_to_tensor(gradient)
        return dense, sparse, local

    def _local(self, gradient):
        """Local variables move as far as those whose gradients are averages over all ranks."""
        if not self.options.scale_local_gradients:
            return gradient
        size = tf.cast(self.options.size(), gradient.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / size
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / size

    def reduce(self, gradients):
        """Reduces gradients within the step (immediate mode).

        Args:
            gradients: dict of variable index to tensor or `tf.IndexedSlices`.

        Returns:
            dict of variable index to reduced tensor or `tf.IndexedSlices`.
        """
        if process.current().reduction == process.NOT_NEEDED:
            return gradients
        xla.check_not_compiling()
        process_set = self.options.process_set
        reduction_options.check_process_set(process_set)
        dense, sparse, local = self.split(gradients)
        if not self.options.is_of_all_ranks() and not process_set.included():
            return {**dense, **sparse, **local}  # as in Horovod, other ranks train by themselves
        if self._through_horovod_only(dense):
            # Ranks with other options wait in the engine, for what this one never submits.
            self._declare({})
        return {**self._reduce_dense(dense), **self.reduce_sparse(sparse), **local}

    def _through_horovod_only(self, dense):
        """Whether nothing of a step of all ranks goes through the engine, though there is one."""
        of_all = process.current().reduction == process.ENGINE and self.options.is_of_all_ranks()
        return of_all and not (dense and self._uses_engine())

    def reduce_sparse(self, gradients):
        """Reduces sparse gradients within the step. They are not compressed.

        Args:
            gradients: dict of variable index to `tf.IndexedSlices`.

        Returns:
            dict of variable index to `tf.IndexedSlices`.
        """
        options = self.options
        if gradients and options.op == horovod.Adasum:
            raise ValueError(
                "op=hvd_p3.Adasum cannot combine sparse gradients; use sparse_as_dense=True. "
                f"Received: sparse gradients of {[self._names[index] for index in gradients]}"
            )
        average = 1.0 / options.size() if options.op == horovod.Average else 1.0
        reduced = {}
        for index, gradient in gradients.items():

            def reduce_dense(whole, index=index):
                return self._reduce_as_it_is({index: whole})[index]

            reduced[index] = sparse_gradients.reduce_rows(
                gradient,
                self._shapes[index],
                self._horovod_name(index),
                self.prescale,
                self.postscale * average,
                reduce_dense,
                options.process_set,
            )
        return reduced

    def _horovod_name(self, index):
        # Horovod ignores what is in front of a slash: Keras puts the numbers of layers and
        # optimizers, which may differ between ranks, into name scopes.
        return f"{self.name.replace('/', '.')}.{index}"

    def _reduce_dense(self, gradients):
        sent, contexts = {}, {}
        for index, gradient in gradients.items():
            sent[index], contexts[index] = self.compression.compress(gradient)
        return {
            index: self.compression.decompress(reduced, contexts[index])
            for index, reduced in self._reduce_as_it_is(sent).items()
        }

    def _reduce_as_it_is(self, tensors):
        if not tensors:
            return {}
        if not self._uses_engine():
            return {
                index: self._reduce_through_horovod(index, tensor)
                for index, tensor in tensors.items()
            }
        handles = self.handles(tensors)
        if tf.executing_eagerly():
            return self._reduce_eagerly(tensors, handles)
        ops.note_arrival([self.slots[index] for index in tensors], list(tensors.values()))
        after = self.after_message(tensors, tensors)
        reduced = {}
        for index, tensor in tensors.items():
            with tf.control_dependencies(after[index]):
                reduced[index] = ops.all_reduce_slot(self.slots[index], tensor, handles[index])
        return reduced

    def _uses_engine(self):
        """The engine sums, over all ranks."""
        return (
            process.current().reduction == process.ENGINE
            and self.options.op != horovod.Adasum
            and self.options.is_of_all_ranks()
        )

    def _reduce_through_horovod(self, index, tensor):
        return collectives.allreduce(
            tensor,
            op=self.options.op,
            prescale_factor=self.prescale,
            postscale_factor=self.postscale,
            name=self._horovod_name(index),
            process_set=self.options.process_set,
            ignore_name_scope=True,
        )

    def _reduce_eagerly(self, tensors, handles):
        """Pushes all tensors before it waits for the first: eagerly, one op would wait for its
        own result while the members of its fused slice are not even pushed."""
        for index, tensor in tensors.items():
            ops.push(self.slots[index], tensor, [], handles[index])
        reduced = {}
        failure = None
        for index, tensor in tensors.items():
            try:
                reduced[index], _, _ = ops.pull(self.slots[index], tensor.dtype, tensor.shape, [])
            except tf.errors.OpError as error:
                failure = failure or error  # the other slots are pulled all the same, to be free
        if failure is not None:
            raise failure
        return reduced
