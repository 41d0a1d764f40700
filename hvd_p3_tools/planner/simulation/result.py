"""What a simulation says."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Result:
    """One scheme on one cluster. Times are seconds of one step, of the slowest ranks.

    Args:
        scheme: str.
        ranks: int.
        bandwidth: float, of a link, in bytes per second.
        step_s: float, from the end of a step to the end of the next.
        throughput: float, examples per second of all ranks together.
        compute_s: float, input, both passes and update.
        communication_s: float, with at least one slice in flight.
        waited_s: float, in which the rank waited for gradients.
        link_use: float, share of the step in which the busiest link was busy.
        bytes: int, of gradients that were reduced.
        slices: int, or fused buffers, that were reduced.
        lower_bound_s: float. No scheme that moves the same bytes is faster.
        sync_period_s: float, from one synchronisation of all weights to the next, of schemes that
            synchronise in the background; else None.
        timeline: `timeline.model.Timeline`, or None if none was asked for.
    """

    scheme: str
    ranks: int
    bandwidth: float
    step_s: float
    throughput: float
    compute_s: float
    communication_s: float
    waited_s: float
    link_use: float
    bytes: int
    slices: int
    lower_bound_s: float
    sync_period_s: float | None = None
    timeline: object = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def hidden_share(self):
        """float, share of the communication behind computation, as the report of a real run has."""
        if self.communication_s <= 0:
            return 0.0
        return min(1.0, max(0.0, 1.0 - self.waited_s / self.communication_s))

    def to_dict(self):
        """Returns the result as it is written to JSON, without the timeline."""
        values = dataclasses.asdict(dataclasses.replace(self, timeline=None))
        del values["timeline"]
        if self.sync_period_s is None:
            del values["sync_period_s"]
        return {**values, "hidden_share": self.hidden_share}
