"""What communication cost since a point in time."""

from hvd_p3 import process


class CommunicationReport:
    """Counts from its making on.

    Example:

    ```python
    report = CommunicationReport()
    model.fit(x, y)
    print(report.as_text(overlapped=True))
    ```
    """

    def __init__(self):
        self._start = process.statistics()

    def _since_start(self):
        now = process.statistics()
        return {name: now[name] - self._start[name] for name in now}

    def as_logs(self):
        """Returns the counts as a dict of floats for Keras's logs."""
        spent = self._since_start()
        return {
            "p3_slices": float(spent["slices"]),
            "p3_megabytes": spent["bytes"] / 1e6,
            "p3_forward_wait_s": spent["forward_wait_seconds"],
            "p3_hidden_share": _hidden_share(spent),
        }

    def as_text(self, overlapped):
        """Returns the counts as one line for people.

        Args:
            overlapped: bool. Whether training was in overlapped mode.
        """
        spent = self._since_start()
        if spent["slices"] == 0:
            return "P3: no gradients went through the priority queue"
        mode = "overlapped" if overlapped else "immediate"
        return (
            f"P3: {mode} mode, {spent['slices']} slices, {spent['bytes'] / 1e6:.1f} MB, "
            f"communication {spent['communication_seconds']:.2f} s, "
            f"forward passes waited {spent['forward_wait_seconds']:.2f} s, "
            f"{100 * _hidden_share(spent):.0f} % of communication hidden"
        )


def _hidden_share(spent):
    communication = spent["communication_seconds"]
    if communication <= 0:
        return 0.0
    return min(1.0, max(0.0, 1.0 - spent["forward_wait_seconds"] / communication))
