"""What the callbacks of synchronisation have in common."""

import contextlib

import keras

from hvd_p3 import process
from hvd_p3.optimizer import is_distributed
from hvd_p3.shadow import pausing
from hvd_p3.shadow.algorithms import Algorithm
from hvd_p3.shadow.channel import open_channel
from hvd_p3.shadow.variables import check_variables, replicated_variables

_START_S = 600.0


class Synchronization(keras.callbacks.Callback):
    """Begins and ends sessions, in `model.fit` and in loops of the user.

    For the thread that trains.

    Args: See `ShadowSync`.
    """

    def __init__(self, algorithm, variables, batch_size, timeout_s, name, verbose):
        super().__init__()
        if not isinstance(algorithm, Algorithm):
            raise TypeError(
                f"{type(self).__name__} needs an algorithm, such as "
                "hvd_p3.shadow.ModelAveraging(). "
                f"Received: {algorithm!r} of type {type(algorithm)}"
            )
        if batch_size is not None and not batch_size >= 1:
            raise ValueError(f"batch_size must be at least 1. Received: batch_size={batch_size!r}")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0. Received: timeout_s={timeout_s!r}")
        self.algorithm = algorithm
        self.batch_size = batch_size
        self.timeout_s = float(timeout_s)
        self.name = str(name)
        self.verbose = verbose
        self._variables = variables
        self._channel = None
        self._sessions = 0  # on this channel
        self._session = None
        self._is_running = False
        self._protection = None
        self._epoch_start = None
        self._last_batch = -1

    @property
    def report(self):
        """The `Report` of the training that has ended, or `None`: during training, or if this rank
        could not synchronise to the end."""
        return None if self._session is None else self._session.report

    @property
    def error(self):
        """The exception that has ended synchronisation on this rank, or `None`."""
        return None if self._session is None else self._session.error

    def paused(self):
        """A context in which synchronisation leaves the variables alone.

        For what must see or set several variables at one time, such as `tf.train.Checkpoint`. The
        model's own methods that save and load need it not.

        Example:

        ```python
        with sync.paused():
            checkpoint.save(path)
        ```
        """
        return contextlib.nullcontext() if self._session is None else self._session.paused()

    @contextlib.contextmanager
    def synchronizing(self, variables):
        """A context in which variables are synchronised, for a training loop of your own.

        All ranks enter and leave it. They enter with the weights of the first rank and leave with
        the same weights, once all have finished.

        Args:
            variables: A built `keras.Model`, or a list of Keras or TensorFlow variables of floating
                point, of the same shapes on all ranks.

        Yields:
            An object whose method `step(examples=0, iterations=1)` is to be called after each
            iteration; it counts, and in the foreground synchronises. With several threads, call it
            from one at a time.

        Raises:
            ValueError, TypeError: If the variables cannot be synchronised.

        Example:

        ```python
        with sync.synchronizing(model) as training:
            for x, y in batches:
                train_step(x, y)
                training.step(examples=len(x))
        print(sync.report.examples_per_s)
        ```
        """
        if isinstance(variables, keras.Model):
            variables = replicated_variables(variables)
        self._begin(variables)
        try:
            yield self._session
        except BaseException:
            self._abort()
            raise
        self._end()

    def abort(self):
        """Ends synchronisation on this rank and tells the others, which go on.

        For loops that call the methods of callbacks themselves, after an exception. `model.fit`,
        `hvd_p3.shadow.fit` and `synchronizing` need it not. Does nothing between trainings.

        Example:

        ```python
        try:
            train_with([sync])
        except ArithmeticError:
            sync.abort()
        ```
        """
        self._release_model()
        self._abort_if_running()

    def on_train_begin(self, logs=None):
        if is_distributed(self.model.optimizer):
            raise ValueError(
                f"{type(self).__name__} synchronises the weights itself: compile the model with an "
                "optimizer that is not wrapped in hvd_p3.DistributedOptimizer."
            )
        self.abort()
        if self.model.built:
            self._begin_with_model()

    def on_epoch_begin(self, epoch, logs=None):
        self._last_batch = -1
        self._epoch_start = None if self._session is None else self._session.counts()

    def on_train_batch_end(self, batch, logs=None):
        if not self._is_running:  # the model was built by its first batch
            self._begin_with_model()
            self._epoch_start = self._session.counts()
        iterations = batch - self._last_batch  # several with steps_per_execution
        self._last_batch = batch
        self._session.step(iterations * (self.batch_size or 0), iterations)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None and self._epoch_start is not None:
            logs.update(self._session.counts().since(self._epoch_start).as_logs())

    def on_train_end(self, logs=None):
        if not self._is_running:
            self._begin_with_model()  # without a single batch; others wait all the same
        self._release_model()
        self._end()

    def _make_session(self, *arguments):
        raise NotImplementedError

    def _make_watch(self):
        """What tells a `Session` that `fit` has failed, or None."""
        return None

    def _begin_with_model(self):
        variables = self._variables
        variables = replicated_variables(self.model) if variables is None else variables
        self._begin(variables, self._make_watch())
        self._protection = pausing.Protection(self.model, self._session)

    def _release_model(self):
        if self._protection is not None:
            self._protection.release()
            self._protection = None

    def _begin(self, variables, watch=None):
        self._abort_if_running()
        variables = list(variables)
        check_variables(variables)  # before other ranks are involved
        predecessor = self._session
        if self._channel is None:
            self._channel = self._open_channel()
            self._sessions = 0
            predecessor = None
        self._sessions += 1
        session = self._make_session(
            self.algorithm,
            variables,
            self._channel,
            self._sessions,
            self.timeout_s,
            predecessor,
            watch,
        )
        try:
            session.start()
        except TimeoutError:
            self._channel = None  # out of step with those that did not come
            raise
        self._session = session
        self._is_running = True

    def _open_channel(self):
        try:
            return open_channel(self.name, _START_S)
        except TimeoutError as error:
            if self._session is None:
                raise
            raise TimeoutError(
                f"{error}. Synchronisation of an earlier training has ended early on this rank: "
                "the others may have gone on without it"
            ) from error

    def _end(self):
        self._is_running = False
        self._session.end()
        report = self._session.report
        if report is None or self._session.may_begin_anew:
            self._channel = None  # out of step with some ranks
        if report is not None and self.verbose and process.rank() == report.ranks[0]:
            print(report.as_text(type(self).__name__), flush=True)

    def _abort_if_running(self):
        if self._is_running:
            self._abort()

    def _abort(self):
        self._is_running = False
        self._session.abort()
        self._channel = None
