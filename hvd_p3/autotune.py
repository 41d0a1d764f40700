"""The search for the `slice_bytes` and `credit_bytes` of the fastest training steps."""

import statistics
import time

from hvd_p3 import _engine, process

TRIALS = 20
STEPS_PER_TRIAL = 5  # intervals that count, of each trial
UNCOUNTED_STEPS = 1  # intervals before them, under the trial's settings already
# The least of many noisy times is too good by chance. So after the trials, the settings of the
# start and the best take turns, and these times alone decide.
TURNS = 3  # of each, as long as a trial
# Before the first trial: a program's first steps are slower under any settings, which would make
# the settings of the start, the first trial, look worse than they are.
WARM_UP_STEPS = 5

_KIB = 1024
# From 16 KiB to 4 MiB, each step a factor of the square root of 2.
SLICE_BYTES = tuple(round(16 * 2 ** (step / 2)) * _KIB for step in range(17))
CREDIT_SLICES = (2, 3, 4, 6, 8, 12, 16, 24, 32)

_SEED = 0
_RANDOM_TRIALS = 8  # before the sampler uses what it has learnt; the first is the start


class Autotuner:
    """Tries settings of the engine during training steps, and keeps the fastest.

    The first trial has the settings of the start. Later ones come from a tree-structured Parzen
    estimator (optuna's TPE) over a grid of slice sizes and of credits in slices, with those of the
    start added. Each trial is rated by the median time of its steps. Settings that are tried again
    are rated by all their steps together. At last the best and the settings of the start take
    turns, and the best are kept only if they are faster again.

    Never changes what is trained: where sums depend on the slices, all trials have the slice size
    of the start.

    For one thread, on rank 0: the engine makes the other ranks follow.

    Args:
        engine: What has `propose_settings` and `current_settings`; by default the running engine.
        clock: Function that returns seconds.

    Raises:
        ImportError: If optuna is not installed.

    Example:

    ```python
    tuner = Autotuner()
    for epoch in range(epochs):
        tuner.skip_interval()
        for batch in range(batches):
            train_step()
            tuner.batch_ended(batch)
    tuner.training_ended()
    ```
    """

    def __init__(self, engine=_engine, clock=time.perf_counter):
        self._optuna = _import_optuna()
        self._engine = engine
        self._clock = clock
        self._start = None  # (slice_bytes, credit_bytes), like all settings here
        # The grid: slice sizes in bytes, and credits in slices.
        self._slice_sizes = None
        self._credits = None
        self._distributions = None
        self._study = None
        self._seconds = {}  # settings -> seconds a step, of all their trials
        self._finished_trials = 0
        self._turns = []  # settings that are still to be compared, in order
        self._compared = {}  # settings -> seconds a step, of their turns
        self._kept = None
        self._trial = None  # optuna's; None for the settings of the start
        self._proposal = None
        self._in_force = False
        self._to_skip = 0
        self._trial_seconds = []
        self._previous_end = None  # (batch, time)

    def is_finished(self):
        """Returns whether the search is over and its result proposed."""
        return self._kept is not None

    def best(self):
        """Returns the settings that are kept, or the fastest of finished trials so far.

        Returns:
            A tuple `(slice_bytes, credit_bytes)`, or `None` before the first trial is finished.
        """
        if self.is_finished():
            return self._kept
        return min(self._seconds, key=self._rating, default=None)

    def skip_interval(self):
        """Says that the time from the previous end of a batch to the next does not count."""
        self._previous_end = None

    def batch_ended(self, batch):
        """Notes the end of a batch, or of several that ran in one call.

        Args:
            batch: int. The number of the last step in its epoch; what it has grown by is the
                number of steps.
        """
        if self.is_finished():
            return
        now = self._clock()
        seconds = self._seconds_a_step(batch, now)
        self._previous_end = (batch, now)
        if self._start is None:
            self._begin()
        elif not self._in_force:
            self._in_force = self._settings_in_force() == self._proposal
        elif self._to_skip > 0:
            self._to_skip -= 1
        elif seconds is not None:
            self._trial_seconds.append(seconds)
            if len(self._trial_seconds) == STEPS_PER_TRIAL:
                self._end_turn() if self._compared else self._end_trial()

    def training_ended(self):
        """Says how far the search is, if it is not finished. The next training goes on with it."""
        if self.is_finished():
            return
        best = self.best()
        so_far = f"; best so far {self._comparison(best)}" if best else ""
        print(
            f"P3 autotune: not finished, {self._finished_trials} of {TRIALS} trials{so_far}. "
            "The next training goes on with it.",
            flush=True,
        )

    def _seconds_a_step(self, batch, now):
        if self._previous_end is None:
            return None
        previous_batch, previous_time = self._previous_end
        steps = batch - previous_batch
        return (now - previous_time) / steps if steps > 0 else None

    def _begin(self):
        current = self._engine.current_settings()
        self._start = (current["slice_bytes"], current["credit_bytes"])
        self._make_study(current["sums_independent_of_slices"])
        self._proposal = self._start
        self._in_force = True
        self._to_skip = WARM_UP_STEPS

    def _make_study(self, search_slices):
        optuna = self._optuna
        slice_bytes, credit_bytes = self._start
        self._slice_sizes = sorted({*SLICE_BYTES, slice_bytes}) if search_slices else [slice_bytes]
        self._credits = sorted({*CREDIT_SLICES, credit_bytes / slice_bytes})
        self._distributions = {
            "slice": optuna.distributions.IntDistribution(0, len(self._slice_sizes) - 1),
            "credit": optuna.distributions.IntDistribution(0, len(self._credits) - 1),
        }
        sampler = optuna.samplers.TPESampler(n_startup_trials=_RANDOM_TRIALS, seed=_SEED)
        # optuna would announce the study on the standard error output.
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self._study = optuna.create_study(sampler=sampler)
        finally:
            optuna.logging.set_verbosity(verbosity)

    def _settings_of(self, point):
        """Returns the settings of a point of the grid, a dict of name to index."""
        slice_bytes = self._slice_sizes[point["slice"]]
        return slice_bytes, round(slice_bytes * self._credits[point["credit"]])

    def _tell(self, value):
        if self._trial is not None:
            self._study.tell(self._trial, value)
            return
        slice_bytes, credit_bytes = self._start
        start = {
            "slice": self._slice_sizes.index(slice_bytes),
            "credit": self._credits.index(credit_bytes / slice_bytes),
        }
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=start, distributions=self._distributions, value=value
            )
        )

    def _settings_in_force(self):
        current = self._engine.current_settings()
        return current["slice_bytes"], current["credit_bytes"]

    def _end_trial(self):
        self._seconds.setdefault(self._proposal, []).extend(self._trial_seconds)
        self._tell(statistics.median(self._trial_seconds))
        self._trial_seconds = []
        self._finished_trials += 1
        if self._finished_trials == TRIALS:
            self._compare()
        else:
            self._trial = self._study.ask(self._distributions)
            self._try(self._settings_of(self._trial.params))

    def _compare(self):
        """Begins the turns of the best and of the settings of the start."""
        best = self.best()
        if best == self._start:
            self._keep(best)
            return
        self._compared = {best: [], self._start: []}
        self._turns = [best, self._start] * TURNS
        self._try(self._turns.pop(0))

    def _end_turn(self):
        self._compared[self._proposal].extend(self._trial_seconds)
        self._trial_seconds = []
        if self._turns:
            self._try(self._turns.pop(0))
            return
        self._seconds.update(self._compared)  # what is said of them rests on the turns
        self._keep(min(self._compared, key=self._rating))

    def _keep(self, settings):
        self._propose(settings)
        self._kept = settings
        print(f"P3 autotune: {self._comparison(settings)} ({TRIALS} trials)", flush=True)

    def _try(self, settings):
        self._propose(settings)
        self._to_skip = UNCOUNTED_STEPS

    def _propose(self, settings):
        self._proposal = settings
        self._in_force = False
        self._engine.propose_settings(*settings)

    def _rating(self, settings):
        return statistics.median(self._seconds[settings])

    def _comparison(self, settings):
        slice_bytes, credit_bytes = settings
        text = (
            f"slice_bytes={slice_bytes} credit_bytes={credit_bytes}, "
            f"{self._rating(settings):.3g} s a step"
        )
        if settings == self._start:
            return f"{text}, the settings of the start"
        return f"{text} instead of {self._rating(self._start):.3g} s with the settings of the start"


def current():
    """Returns the one tuner of this process, which several trainings share.

    Returns:
        The `Autotuner`, made at the first call after `hvd_p3.init`, or `None` where there is
        nothing to do: `autotune` is off, gradients do not go through the engine, or this is not
        rank 0.

    Raises:
        ImportError: If optuna is not installed.
        ValueError: Before `hvd_p3.init`.

    Example:

    ```python
    tuner = autotune.current()
    if tuner:
        tuner.batch_ended(batch)
    ```
    """
    global _tuner, _process
    this = process.current()
    if not this.config.autotune or this.reduction != process.ENGINE or process.rank() != 0:
        return None
    if _process is not this:
        _tuner, _process = Autotuner(), this
    return _tuner


_tuner = None
_process = None  # whose tuner it is


def _import_optuna():
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "The setting autotune (HVD_P3_AUTOTUNE) needs the package optuna, which cannot be "
            f"imported here ({error}). Run `pip install optuna`, or leave HVD_P3_AUTOTUNE unset."
        ) from error
    return optuna
