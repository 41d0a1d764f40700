"""Finds slices and credit with which hvd_p3 is fast."""

from hvd_p3_tools.planner import units
from hvd_p3_tools.planner.simulation.cluster import Settings
from hvd_p3_tools.planner.simulation.simulator import simulate

# The first are the defaults.
CANDIDATES = tuple(
    Settings(slice_bytes=slice_bytes, credit_bytes=credit_bytes)
    for slice_bytes in (120 * 1024, 512 * 1024, 2 * 2**20, 8 * 2**20)
    for credit_bytes in (768 * 1024, 4 * 2**20, 16 * 2**20, 64 * 2**20)
    if credit_bytes >= slice_bytes
)
_WORTH_CHANGING = 1.01  # times as fast as with the defaults


def fastest_settings(profile, cluster):
    """Simulates `CANDIDATES`.

    Args:
        profile: `profile.Profile`.
        cluster: `Cluster`.

    Returns:
        `Settings` with which `p3` is the fastest, the defaults if others gain less than 1 %; and
        the seconds of a step with the defaults.
    """
    seconds = {each: simulate(profile, cluster, "p3", each).step_s for each in CANDIDATES}
    default, fastest = Settings(), min(seconds, key=seconds.get)
    gains = seconds[default] >= _WORTH_CHANGING * seconds[fastest]
    return (fastest if gains else default), seconds[default]


def describe(settings):
    """Returns slices and credit as environment variables."""
    return (
        f"HVD_P3_SLICE_BYTES={settings.slice_bytes} and HVD_P3_CREDIT_BYTES="
        f"{settings.credit_bytes} (slices of {units.print_size(settings.slice_bytes)})"
    )
