"""Synchronisation for `model.fit` and for loops of your own."""

from hvd_p3.shadow.background import BackgroundSession
from hvd_p3.shadow.fit_watch import FitWatch
from hvd_p3.shadow.foreground import ForegroundSession
from hvd_p3.shadow.synchronization import Synchronization

_TIMEOUT_S = 60.0


class ShadowSync(Synchronization):
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

    def _make_watch(self):
        return FitWatch()


class ForegroundSync(Synchronization):
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
