"""Scenarios for the engine: how tests describe one, make random ones, and run it."""

import dataclasses
import json
import subprocess

from hypothesis import strategies

DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")


@dataclasses.dataclass
class Tensor:
    name: str
    shape: list
    dtype: str = "float32"
    priority: int = 0
    op: str = "sum"
    prescale: float = 1.0
    postscale: float = 1.0

    def line(self):
        fields = [self.name, self.dtype, self.priority, self.op, self.prescale, self.postscale]
        return " ".join(map(str, ["tensor", *fields, *self.shape]))


@dataclasses.dataclass
class Scenario:
    ranks: int
    tensors: list
    steps: int = 1
    slice_bytes: int = 1024
    credit_bytes: int = 4096
    seed: int = 0
    most_slice_delay_us: int = 0
    most_event_delay_us: int = 0
    idle_ms: int = 0
    # (rank, step) -> list of (tensor index, delay in microseconds); by default all in order.
    submissions: dict = dataclasses.field(default_factory=dict)
    on_device: set = dataclasses.field(default_factory=set)  # indices of tensors
    in_place: dict = dataclasses.field(default_factory=dict)  # rank -> set of indices
    extra_lines: list = dataclasses.field(default_factory=list)

    def text(self):
        names = ("ranks", "steps", "slice_bytes", "credit_bytes", "seed")
        names += ("most_slice_delay_us", "most_event_delay_us", "idle_ms")
        lines = [f"{name} {getattr(self, name)}" for name in names]
        lines += [tensor.line() for tensor in self.tensors]
        in_order = [(index, 0) for index in range(len(self.tensors))]
        for rank in range(self.ranks):
            if self.on_device:
                lines.append(f"device {rank} " + " ".join(map(str, sorted(self.on_device))))
            if self.in_place.get(rank):
                lines.append(f"in_place {rank} " + " ".join(map(str, sorted(self.in_place[rank]))))
            for step in range(self.steps):
                entries = self.submissions.get((rank, step), in_order)
                flat = " ".join(f"{tensor} {delay}" for tensor, delay in entries)
                lines.append(f"submit {rank} {step} {flat}")
        return "\n".join(lines + self.extra_lines) + "\n"


def run(binary, scenario):
    """Runs a scenario and returns its report. Fails if the program hangs or crashes."""
    result = subprocess.run(
        [binary], input=scenario.text(), capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, f"{result.stderr}\nscenario:\n{scenario.text()}"
    return json.loads(result.stdout)


@strategies.composite
def tensors(draw):
    count = draw(strategies.integers(1, 8))
    scales = strategies.sampled_from([0.5, 1.0, 2.0])
    return [
        Tensor(
            name=f"t{index}",
            shape=draw(strategies.lists(strategies.integers(0, 24), max_size=2)),
            dtype=draw(strategies.sampled_from(DTYPES)),
            priority=draw(strategies.integers(0, 4)),
            op=draw(strategies.sampled_from(["sum", "average"])),
            prescale=draw(scales),
            postscale=draw(scales),
        )
        for index in range(count)
    ]


@strategies.composite
def scenarios(draw):
    ranks = draw(strategies.integers(1, 8))
    steps = draw(strategies.integers(1, 3))
    declared = draw(tensors())
    order = strategies.permutations(range(len(declared)))
    delay = strategies.sampled_from([0, 0, 0, 50, 400])
    indices = set(range(len(declared)))
    some = strategies.sets(strategies.sampled_from(sorted(indices)))
    return Scenario(
        ranks=ranks,
        steps=steps,
        tensors=declared,
        slice_bytes=draw(strategies.integers(1, 600)),
        credit_bytes=draw(strategies.integers(1, 4000)),
        seed=draw(strategies.integers(0, 1000)),
        most_slice_delay_us=draw(strategies.sampled_from([0, 100, 1000])),
        most_event_delay_us=draw(strategies.sampled_from([0, 0, 300])),
        # Host memory, the memory of a simulated device, and both.
        on_device=draw(strategies.just(set()) | strategies.just(indices) | some),
        in_place={rank: draw(some) for rank in range(ranks)},
        submissions={
            (rank, step): [(index, draw(delay)) for index in draw(order)]
            for rank in range(ranks)
            for step in range(steps)
        },
    )
