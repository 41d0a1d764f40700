"""What an algorithm of synchronisation is."""

import abc


class Algorithm(abc.ABC):
    """How a rank's weights are brought together with those of other ranks.

    A synchronisation reads the weights `w` of this rank as one vector, asks `synchronize` for the
    point to which they are to be drawn, and blends: `w <- (1 - alpha) * w + alpha * target`.

    Write your own by deriving from this class. The same code then runs in the background
    (`ShadowSync`) and in the foreground (`ForegroundSync`). All methods are called by one thread at
    a time. They must not keep or change the vectors that they are given.

    Args:
        alpha: float in (0, 1], the elastic parameter: the share of the way to the target by which
            one synchronisation moves the weights.

    Raises:
        ValueError: If `alpha` is out of range.

    Example:

    ```python
    class Gossip(hvd_p3.shadow.Algorithm):
        collective = True

        def synchronize(self, weights, group):
            return group.mean(weights)
    ```
    """

    # Whether `synchronize` takes all ranks at the same time. Then ranks meet before each call, and
    # one that has finished training goes on to take part until all have finished.
    collective = True

    def __init__(self, alpha):
        if not 0 < alpha <= 1:
            raise ValueError(
                f"{type(self).__name__} needs alpha above 0 and up to 1. Received: alpha={alpha!r}"
            )
        self.alpha = float(alpha)

    def start(self, weights, group):  # noqa: B027
        """Called once before the first synchronisation, on all ranks.

        Args:
            weights: 1-D NumPy array of float32 or float64, the same on all ranks.
            group: `Group`.
        """

    @abc.abstractmethod
    def synchronize(self, weights, group):
        """Called for each synchronisation.

        Args:
            weights: 1-D NumPy array, the weights of this rank now.
            group: `Group`.

        Returns:
            A NumPy array of the same shape: the point to which the weights are drawn.
        """

    def ranks_changed(self, group):  # noqa: B027
        """Called when ranks have been given up, and with a collective algorithm when a sum has
        failed on some rank: on all that are left together, before the next call. With another
        algorithm, each rank calls it when it has heard of the loss.

        Args:
            group: `Group`, without those that are gone.
        """

    def finish(self, weights, group):
        """Called once at the end, on all ranks together, when none is training any more.

        Args:
            weights: 1-D NumPy array, the last weights of this rank.
            group: `Group`.

        Returns:
            A NumPy array of the same shape: the weights that all ranks are left with. Those of the
            first rank count.
        """
        return group.mean(weights)

    def stop(self):  # noqa: B027
        """Called last of all, also after an error: ends what `start` has started."""
