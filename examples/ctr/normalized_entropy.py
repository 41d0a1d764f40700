"""Normalised entropy, by which click predictions are judged."""

import numpy as np


class NormalizedEntropy:
    """Log loss divided by the log loss of always predicting the average click-through rate.

    Below 1 is better than knowing nothing but that rate; differences of 0.1 % matter in practice.
    See Practical Lessons from Predicting Clicks on Ads at Facebook (He et al., 2014), section 3.

    Example:

    ```python
    metric = NormalizedEntropy()
    metric.add(clicks, logits)
    print(metric.result())
    ```
    """

    def __init__(self):
        self._totals = np.zeros(3)

    def add(self, clicks, logits):
        """Adds predictions.

        Args:
            clicks: Array of 0 and 1.
            logits: Array of as many numbers.
        """
        clicks = np.asarray(clicks, np.float64).ravel()
        logits = np.asarray(logits, np.float64).ravel()
        log_losses = np.logaddexp(0.0, logits) - clicks * logits
        self._totals += len(clicks), clicks.sum(), log_losses.sum()

    @property
    def totals(self):
        """Impressions, clicks and the sum of log losses: NumPy vector of float64."""
        return self._totals.copy()

    def add_totals(self, totals):
        """Adds the `totals` of another one, for example of another rank."""
        self._totals += totals

    def result(self):
        """Returns the normalised entropy as a float.

        Raises:
            ValueError: If there are no clicks, or nothing but clicks, so that it is not defined.
        """
        impressions, clicks, log_loss = self._totals
        if not 0 < clicks < impressions:
            raise ValueError(
                "Normalised entropy needs some impressions with and some without a click. "
                f"Received: {impressions:.0f} impressions, {clicks:.0f} clicks"
            )
        rate = clicks / impressions
        entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
        return float(log_loss / impressions / entropy)
