"""Horovod's environment variables: those taken over, those passed on, those without effect."""

import math
import os
import warnings

_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
_WARNING = "HOROVOD_STALL_CHECK_TIME_SECONDS"
_TIMEOUT = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"

# Settings of hvd_p3 that Horovod has too, under another name. `horovodrun --stall-check-...` sets
# these.
_TAKEN_OVER = {"stall_warning_s": _WARNING, "stall_timeout_s": _TIMEOUT}

# Horovod looks for stalls at this part of the timeout. It has to look up to four times.
_LOOKS = 4

# What acts on Horovod's own collectives and not on gradients -> what to use instead.
_WITHOUT_EFFECT = {
    "HOROVOD_FUSION_THRESHOLD": "HVD_P3_SLICE_BYTES",
    "HOROVOD_CYCLE_TIME": "nothing, since gradients are sent when they are ready",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "nothing",
    "HOROVOD_TORUS_ALLREDUCE": "nothing",
    "HOROVOD_AUTOTUNE": "HVD_P3_AUTOTUNE",
    "HOROVOD_TIMELINE": "HVD_P3_TIMELINE",
}


def variable_for(setting):
    """Returns Horovod's variable for a setting, which counts if that of hvd_p3 is not set.

    Args:
        setting: str, name of a field of `Configuration`.

    Returns:
        (variable, text), or `None` if no variable says anything of the setting.
    """
    if setting not in _TAKEN_OVER:
        return None
    if _is_on(_DISABLE):
        return _DISABLE, "0"
    variable = _TAKEN_OVER[setting]
    text = os.environ.get(variable)
    return None if text is None else (variable, text)


def pass_on(config):
    """Makes Horovod's own operations end a wait too; before Horovod's init.

    Sparse gradients, Adasum, process sets and callbacks use these. Variables that the user has set
    stay.

    Args:
        config: `Configuration`.
    """
    for variable, text in _stall_variables(config).items():
        os.environ.setdefault(variable, text)


def _stall_variables(config):
    limits = [config.stall_warning_s, config.stall_timeout_s / _LOOKS]
    looks = [max(1, math.ceil(limit)) for limit in limits if limit > 0]
    if not looks:
        return {_DISABLE: "1"}
    variables = {_WARNING: str(min(looks))}
    if config.stall_timeout_s > 0:
        variables[_TIMEOUT] = str(math.ceil(config.stall_timeout_s))
    return variables


def warn_of_those_without_effect():
    """Warns of variables that are set and do not act on gradients."""
    found = [variable for variable in _WITHOUT_EFFECT if _is_on(variable)]
    if found:
        uses = "; ".join(f"{variable}: use {_WITHOUT_EFFECT[variable]}" for variable in found)
        warnings.warn(
            "These variables, which horovodrun sets too, act on Horovod's own collectives and not "
            f"on gradients. {uses}. See docs/migrating.md.",
            stacklevel=3,
        )


def _is_on(variable):
    return os.environ.get(variable, "") not in ("", "0")
