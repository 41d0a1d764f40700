"""What synchronisation has cost and brought, in the measures of the ShadowSync paper."""

import threading
import time


class Counts:
    """Counts of one rank at one time.

    Args:
        seconds: float, since the start.
        examples: float, trained; 0 if their number is not known.
        iterations: float, trained.
        synchronizations: float.
    """

    def __init__(self, seconds=0.0, examples=0.0, iterations=0.0, synchronizations=0.0):
        self.seconds = seconds
        self.examples = examples
        self.iterations = iterations
        self.synchronizations = synchronizations

    def since(self, earlier):
        """The counts between an earlier time and this one."""
        return Counts(
            self.seconds - earlier.seconds,
            self.examples - earlier.examples,
            self.iterations - earlier.iterations,
            self.synchronizations - earlier.synchronizations,
        )

    @property
    def examples_per_s(self):
        return self.examples / self.seconds if self.seconds > 0 else 0.0

    @property
    def iterations_per_s(self):
        return self.iterations / self.seconds if self.seconds > 0 else 0.0

    @property
    def synchronizations_per_min(self):
        return 60 * self.synchronizations / self.seconds if self.seconds > 0 else 0.0

    @property
    def average_sync_gap(self):
        """Iterations between two synchronisations; infinite without any."""
        if self.synchronizations > 0:
            return self.iterations / self.synchronizations
        return float("inf") if self.iterations > 0 else 0.0

    def as_logs(self):
        """The measures as a dict of floats for Keras's logs."""
        return {
            "shadow_examples_per_s": self.examples_per_s,
            "shadow_iterations_per_s": self.iterations_per_s,
            "shadow_syncs_per_min": self.synchronizations_per_min,
            "shadow_sync_gap": self.average_sync_gap,
        }


class Meter:
    """Counts. Any thread may call."""

    def __init__(self):
        self._lock = threading.Lock()
        self._counts = Counts()
        self._start = time.monotonic()
        self._end = None

    def trained(self, iterations, examples):
        """Args: iterations: int; examples: int, in all of them together."""
        with self._lock:
            self._counts.iterations += iterations
            self._counts.examples += examples

    def synchronized(self):
        with self._lock:
            if self._end is None:  # what comes later is for the sake of other ranks
                self._counts.synchronizations += 1

    def stop(self):
        """Ends the time that counts: this rank has finished training."""
        with self._lock:
            self._end = self._end or time.monotonic()

    def counts(self):
        """Returns the `Counts` so far."""
        with self._lock:
            seconds = (self._end or time.monotonic()) - self._start
            return Counts(
                seconds,
                self._counts.examples,
                self._counts.iterations,
                self._counts.synchronizations,
            )


class Report:
    """The measures of all ranks over the whole training.

    Args:
        ranks: List of int, the ranks that have taken part to the end.
        examples_per_s: float, of all of them together; 0 if their number is not known.
        iterations_per_s: float, of all of them together.
        synchronizations_per_min: float, sum over the ranks.
        iterations, synchronizations: float, sums over the ranks.
    """

    def __init__(
        self,
        ranks,
        examples_per_s,
        iterations_per_s,
        synchronizations_per_min,
        iterations,
        synchronizations,
    ):
        self.ranks = ranks
        self.examples_per_s = examples_per_s
        self.iterations_per_s = iterations_per_s
        self.synchronizations_per_min = synchronizations_per_min / len(ranks)  # of one rank
        self.average_sync_gap = iterations / synchronizations if synchronizations else float("inf")

    def as_text(self, name):
        """Returns the report as one line for people.

        Args:
            name: str, what has synchronised.
        """
        if self.examples_per_s:
            speed = f"{self.examples_per_s:.0f} examples/s"
        else:
            speed = f"{self.iterations_per_s:.1f} iterations/s"
        return (
            f"{name}: {len(self.ranks)} ranks, together {speed}; each "
            f"{self.synchronizations_per_min:.1f} synchronisations a minute, average sync gap "
            f"{self.average_sync_gap:.2f} iterations"
        )
