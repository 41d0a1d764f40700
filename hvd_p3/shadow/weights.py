"""The synchronised variables of a rank as one vector, read and changed while others train them."""

import contextlib
import threading

import numpy as np
import tensorflow as tf

from hvd_p3.shadow.variables import check_variables, is_bounded
from hvd_p3.variables import path_of


class ReplicatedWeights:
    """Reads variables into a vector, and adds a vector to them, without stopping who trains them.

    - Reading takes a snapshot of each variable: TensorFlow copies a variable before it changes one
      that somebody is reading. Different variables may be read before and after a training step.
      A variable that is trained by sparse gradients, such as the table of
      `keras.layers.Embedding`, may be read in the middle of an update: some rows, or some elements
      of a row, from before it and others from after it.
    - Blending adds a difference and never assigns: `assign_add` and the updates of optimizers
      exclude each other variable by variable, so no update that an optimizer expresses as an
      addition or subtraction is lost, dense or sparse, nor is the blend. If blending assigned what
      it has computed from an old value, updates would be lost. No element is ever torn.

    Any thread may call. `paused` keeps all of it away from the variables.

    Args:
        variables: List of Keras or TensorFlow variables of floating point.

    Raises:
        TypeError, ValueError: See `check_variables`.
    """

    def __init__(self, variables):
        self._natives = check_variables(variables)
        self.signature = [
            f"'{path_of(variable)}' {native.dtype.name}{native.shape.as_list()}"
            for variable, native in zip(variables, self._natives, strict=True)
        ]
        is_double = any(native.dtype == tf.float64 for native in self._natives)
        self._dtype = tf.float64 if is_double else tf.float32
        self._sizes = [native.shape.num_elements() for native in self._natives]
        self.size = sum(self._sizes)
        self._bounded = [is_bounded(variable) for variable in variables]
        # Of each element of the vector, whether it must stay within the values of the ranks.
        self.bounded = np.repeat(self._bounded, self._sizes)
        self._lock = threading.RLock()
        self._changes = 0  # how often others may have set the variables
        vector = tf.TensorSpec([self.size], self._dtype)
        # Functions, so that each is one call that holds the GIL only at its ends.
        self._read = tf.function(self._concatenated).get_concrete_function()
        self._add = tf.function(self._add_parts, input_signature=[vector]).get_concrete_function()
        if any(self._bounded):
            share = tf.TensorSpec([], self._dtype)
            self._draw = tf.function(
                self._draw_bounded, input_signature=[vector, share]
            ).get_concrete_function()

    @property
    def dtype(self):
        """NumPy dtype of the vector: float64 if any variable is, otherwise float32."""
        return np.dtype(self._dtype.as_numpy_dtype)

    def _concatenated(self):
        with tf.device("CPU:0"):
            parts = [
                tf.reshape(tf.cast(native.read_value(), self._dtype), [-1])
                for native in self._natives
            ]
            return tf.concat(parts, 0)

    def _parts(self, vector):
        for native, part in zip(self._natives, tf.split(vector, self._sizes), strict=True):
            yield native, tf.cast(tf.reshape(part, native.shape), native.dtype)

    def _add_parts(self, vector):
        for native, part in self._parts(vector):
            native.assign_add(part, read_value=False)

    def _draw_bounded(self, target, alpha):
        for (native, part), bounded in zip(self._parts(target), self._bounded, strict=True):
            if bounded:
                share = tf.cast(alpha, native.dtype)
                native.assign((1 - share) * native + share * part, read_value=False)

    def read(self):
        """Returns (vector, ticket): a new 1-D NumPy array, and what `add` takes with it."""
        with self._lock:
            return self._read().numpy(), self._changes

    def add(self, vector, ticket):
        """Adds a vector to the variables.

        Does nothing if others have had the variables for themselves since the read and may have
        set them, for example to load weights: what was computed from the values before is no longer
        right.

        Args:
            vector: 1-D NumPy array.
            ticket: As `read` has returned it.

        Returns:
            Whether it was added.
        """
        with self._lock:
            if ticket != self._changes:
                return False
            self._add(tf.constant(vector, self._dtype))
            return True

    def blend(self, before, target, alpha, ticket):
        """Draws the variables towards a target: adds `alpha * (target - before)`.

        Bounded variables are set to `(1 - alpha) * now + alpha * target` instead, which is never
        outside of what they are and the target, however much training has changed them meanwhile.
        An update of training between the two may be lost.

        Args:
            before: 1-D NumPy array, as `read` has returned it.
            target: 1-D NumPy array.
            alpha: float.
            ticket: As `read` has returned it.

        Returns:
            Whether it was done; see `add`.
        """
        difference = target - before
        difference *= alpha
        difference[self.bounded] = 0
        with self._lock:
            added = self.add(difference, ticket)
            if added and any(self._bounded):
                self._draw(tf.constant(target, self._dtype), tf.constant(alpha, self._dtype))
            return added

    def assign(self, vector):
        """Sets the variables. Only while nobody trains them.

        Args:
            vector: 1-D NumPy array.
        """
        with self._lock:
            for native, part in self._parts(tf.constant(vector, self._dtype)):
                native.assign(part)

    @contextlib.contextmanager
    def paused(self, writes=True):
        """A context in which the variables belong to the calling thread: `read` and `add` wait.

        Args:
            writes: bool, whether the thread may set the variables. If not, what was read before may
                still be added afterwards, so that saving often does not undo synchronisation.
        """
        with self._lock:
            if writes:
                self._changes += 1
            yield
