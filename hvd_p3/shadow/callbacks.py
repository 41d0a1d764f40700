"""Synchronisation for `model.fit` and for loops of your own."""

import contextlib

import keras

from hvd_p3 import process
from hvd_p3.optimizer import is_distributed
from hvd_p3.shadow import pausing
from hvd_p3.shadow.algorithms import Algorithm
from hvd_p3.shadow.background import BackgroundSession
from hvd_p3.shadow.channel import open_channel
from hvd_p3.shadow.foreground import ForegroundSession
from hvd_p3.shadow.variables import check_variables, replicated_variables

_TIMEOUT_S = 60.0
_START_S = 600.0


class _Synchronization(keras.callbacks.Callback):
    """What ShadowSync and ForegroundSync have in common."""

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

    def on_train_begin(self, logs=None):
        if is_distributed(self.model.optimizer):
            raise ValueError(
                f"{type(self).__name__} synchronises the weights itself: compile the model with an "
                "optimizer that is not wrapped in hvd_p3.DistributedOptimizer."
            )
        self._release_model()
        self._abort_if_running()
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

    def _begin_with_model(self):
        variables = self._variables
        self._begin(replicated_variables(self.model) if variables is None else variables)
        self._protection = pausing.Protection(self.model, self._session)

    def _release_model(self):
        if self._protection is not None:
            self._protection.release()
            self._protection = None

    def _begin(self, variables):
        self._abort_if_running()
        variables = list(variables)
        check_variables(variables)  # before other ranks are involved
        if self._channel is None:
            self._channel = open_channel(self.name, _START_S)
        self._sessions += 1
        session = self._make_session(
            self.algorithm, variables, self._channel, self._sessions, self.timeout_s
        )
        session.start()
        self._session = session
        self._is_running = True

    def _end(self):
        self._is_running = False
        self._session.end()
        report = self._session.report
        if report is None or len(report.ranks) < self._channel.size:
            self._channel = None  # out of step with some ranks
        if report is not None and self.verbose and process.rank() == 0:
            print(report.as_text(type(self).__name__), flush=True)

    def _abort_if_running(self):
        if self._is_running:
            self._abort()

    def _abort(self):
        self._is_running = False
        self._session.abort()
        self._channel = None


class ShadowSync(_Synchronization):
    """Synchronises ranks in the background: training never waits for the network.

    Each rank trains on its own data with its own optimizer, which is not wrapped. A thread of its
    own, the shadow thread, brings the weights of the ranks together over and over, with a
    communicator of its own. All ranks start with the weights of rank 0. At the end, ranks wait for
    each other, and all are left with the same weights.

    docs/shadow-sync.md says which guarantees hold while weights are read and changed at the same
    time, and what happens to ranks that are slow or gone.

    Adds to each epoch's `logs`, of this rank, as floats: `shadow_examples_per_s` (0 without
    `batch_size`), `shadow_iterations_per_s`, `shadow_syncs_per_min`, and `shadow_sync_gap`, the
    average number of iterations between two synchronisations.

    Method: ShadowSync (Zheng et al., 2020).

    Args:
        algorithm: `ModelAveraging`, `BlockwiseModelUpdateFiltering`, `ElasticAveraging`, or an
            `Algorithm` of your own. The same on all ranks.
        interval_s: float, seconds of rest between two synchronisations. A small model on a fast
            network would spend much processor time on synchronising without any.
        variables: Optional list of variables to synchronise. By default all floating-point weights
            of the model, but for layers with `is_sharded_over_ranks = True`.
        batch_size: Optional int, the examples of one iteration on this rank, from which examples
            per second are counted.
        timeout_s: float, seconds without an answer after which a rank counts as gone; it is noticed
            within three times that.
        name: str for error messages; tells several in one job apart.
        verbose: int. 1 prints a report at the end of training on rank 0, 0 does not.

    Raises:
        TypeError, ValueError: If an argument makes no sense; at the start of training, if the model
            has a distributed optimizer, or ranks have different models.
        TimeoutError: At the start of training, if a rank does not come.
        RuntimeError: At the start of training, if Horovod runs without MPI.

    Example:

    ```python
    hvd_p3.init()
    model.compile(keras.optimizers.Adagrad(0.01), "binary_crossentropy")
    sync = hvd_p3.shadow.ShadowSync(hvd_p3.shadow.ModelAveraging(alpha=0.5), batch_size=200)
    model.fit(data_of_this_rank, callbacks=[sync])
    ```
    """

    def __init__(
        self,
        algorithm,
        interval_s=0.01,
        variables=None,
        batch_size=None,
        timeout_s=_TIMEOUT_S,
        name="shadow",
        verbose=1,
    ):
        super().__init__(algorithm, variables, batch_size, timeout_s, name, verbose)
        if not interval_s >= 0:
            raise ValueError(f"interval_s must be at least 0. Received: interval_s={interval_s!r}")
        self.interval_s = float(interval_s)

    def _make_session(self, *arguments):
        return BackgroundSession(*arguments, interval_s=self.interval_s)


class ForegroundSync(_Synchronization):
    """Synchronises ranks every k iterations, while training waits: the baseline of `ShadowSync`.

    With the same algorithms, these are FR-MA, FR-BMUF and FR-EASGD. The algorithms that need all
    ranks make the fast ranks wait for the slow ones; with a rank that does something else for long,
    such as validation, raise `timeout_s`.

    Method: the foreground algorithms to which ShadowSync (Zheng et al., 2020) is compared.

    Args:
        algorithm: See `ShadowSync`.
        every: int, the iterations of this rank between two synchronisations.
        variables, batch_size, timeout_s, name, verbose: See `ShadowSync`.

    Raises:
        TypeError, ValueError, TimeoutError, RuntimeError: See `ShadowSync`.

    Example:

    ```python
    sync = hvd_p3.shadow.ForegroundSync(hvd_p3.shadow.ElasticAveraging(alpha=0.3), every=5)
    model.fit(data_of_this_rank, callbacks=[sync])
    ```
    """

    def __init__(
        self,
        algorithm,
        every,
        variables=None,
        batch_size=None,
        timeout_s=_TIMEOUT_S,
        name="foreground",
        verbose=1,
    ):
        super().__init__(algorithm, variables, batch_size, timeout_s, name, verbose)
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be an int of at least 1. Received: every={every!r}")
        self.every = every

    def _make_session(self, *arguments):
        return ForegroundSession(*arguments, every=self.every)
