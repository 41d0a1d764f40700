"""Profiles and clusters for the planner's tests: made by hand, and random ones."""

from hypothesis import strategies as st

from hvd_p3_tools.planner.network import Network
from hvd_p3_tools.planner.profile import Gradient, Layer, Profile
from hvd_p3_tools.planner.simulation.cluster import Cluster, Settings

# Nothing but bytes costs anything: what is left of a scheme is its order.
FREE = {"latency_s": 0.0}


def profile(*layers, **more):
    """A profile of layers given as (forward_s, backward_s, bytes of gradients...)."""
    activation_bytes = more.pop("activation_bytes", 0)  # of each layer
    made = tuple(
        Layer(
            f"layer_{index}",
            forward_s,
            backward_s,
            tuple(Gradient(f"variable_{number}", size) for number, size in enumerate(sizes)),
            activation_bytes,
        )
        for index, (forward_s, backward_s, *sizes) in enumerate(layers)
    )
    return Profile("by hand", "A test.", more.pop("batch", 8), made, **more)


def cluster(ranks=2, bandwidth=1e6, **more):
    """A cluster without latency, unless it is given."""
    network = {name: more.pop(name) for name in list(more) if name in Network.__annotations__}
    return Cluster(ranks, Network(bandwidth, **(FREE | network)), **more)


_seconds = st.floats(1e-4, 0.1)
_sizes = st.lists(st.integers(1, 50_000).map(lambda size: 4 * size), max_size=3)
profiles = st.builds(
    lambda layers, update_s, input_s: profile(
        *[(forward_s, backward_s, *sizes) for forward_s, backward_s, sizes in layers],
        update_s=update_s,
        input_s=input_s,
    ),
    st.lists(st.tuples(_seconds, _seconds, _sizes), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.01]),
    st.sampled_from([0.0, 0.02]),
)
ranks = st.sampled_from([1, 2, 3, 4, 7, 8, 64, 4096])
bandwidths = st.floats(1e5, 1e9)
settings = st.builds(
    Settings,
    slice_bytes=st.sampled_from([4, 4096, 120 * 1024]).filter(lambda size: size > 4)
    | st.integers(2048, 300_000),
    credit_bytes=st.integers(1, 2_000_000),
    priorities=st.booleans(),
    fuse=st.booleans(),
    fusion_bytes=st.sampled_from([0, 100_000, 2**27]),
    # No round number: whether a gradient that is made just when a cycle begins is part of it, is a
    # matter of the rounding of floats.
    cycle_s=st.sampled_from([0.0, 0.97319e-3]),
)
