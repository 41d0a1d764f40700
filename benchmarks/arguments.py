"""The arguments of `python -m benchmarks`, and the experiments that they choose."""

import argparse
import dataclasses
import math
from pathlib import Path

from benchmarks import experiments, shadow, systems
from hvd_p3_tools.planner import model_tables

_TUNED_NAMES = [each.name for each in experiments.TUNED]
_TUNED = " and ".join(_TUNED_NAMES)
COMMANDS = ("compare", "tune", "micro", "shadow", "validate")
# Which commands look at an option. Given to another, it is an error: the results would be those of
# another question.
_USED_BY = {
    **dict.fromkeys(
        ("full", "experiments", "autotune", "fusion_threshold", "cycle_time"), ("compare",)
    ),
    **dict.fromkeys(("hosts", "bandwidth"), ("compare", "tune", "micro", "shadow")),
    **dict.fromkeys(("turns", "seconds", "threshold", "example"), ("shadow",)),
    "models": ("compare", "tune", "micro", "validate"),
    "ratios": ("compare", "micro"),
    "systems": ("compare", "tune", "validate"),
    "steps_per_execution": ("compare", "tune", "validate"),
    **dict.fromkeys(("warmup", "steps"), ("compare", "tune", "micro", "validate")),
    **dict.fromkeys(("slice_kib", "credit_kib"), ("micro",)),
}


def parse(arguments, description):
    """Parses a command line, and ends the program with a message if it makes no sense.

    Args:
        arguments: List of str; None for those of this program.
        description: str, for `--help`.

    Returns:
        `argparse.Namespace`.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=COMMANDS, default="compare")
    parser.add_argument("--full", action="store_true", help="all experiments")
    parser.add_argument(
        "--hosts",
        type=int,
        default=4,
        help="emulated hosts (default: 4); the experiments hosts and tensors have their own",
    )
    parser.add_argument(
        "--bandwidth",
        type=_number,
        metavar="GBIT",
        help=f"of each link, in Gbit/s (default: 1; {shadow.BANDWIDTH_GBIT:g} for shadow)",
    )
    parser.add_argument(
        "--turns", type=int, default=3, help="of each system, for shadow (default: 3)"
    )
    parser.add_argument(
        "--seconds", type=_number, default=8.0, help="of a turn, for shadow (default: 8)"
    )
    parser.add_argument(
        "--threshold",
        type=_number,
        default=shadow.THRESHOLD,
        metavar="SHARE",
        help="of unsynchronised training that shadow must keep in the background, or it exits with "
        f"code 1 (default: {shadow.THRESHOLD:g})",
    )
    parser.add_argument(
        "--example",
        action="store_true",
        help="with shadow: run examples/ctr_shadow_sync.py on the emulated hosts instead",
    )
    parser.add_argument(
        "--steps-per-execution",
        type=int,
        metavar="N",
        help="Keras's steps_per_execution, of all systems (default: 8; 1 with --autotune and for "
        "other commands than compare)",
    )
    parser.add_argument(
        "--warmup", type=int, help="steps before the measured ones (default: N, or 2 if N is 1)"
    )
    parser.add_argument("--steps", type=int, help="measured steps (default: N, or 5 if N is 1)")
    _add_choices(parser, "--models", experiments.MODELS, "these models instead")
    parser.add_argument(
        "--ratios", nargs="+", type=_number, metavar="R", help="these ratios r instead"
    )
    _add_choices(
        parser, "--systems", [each.name for each in experiments.BY_NAME], "these systems instead"
    )
    _add_choices(
        parser,
        "--experiments",
        experiments.names_of_full(),
        "only these experiments of --full",
    )
    parser.add_argument(
        "--fusion-threshold",
        type=int,
        metavar="KIB",
        help=f"of {_TUNED}, instead of what `tune` has found",
    )
    parser.add_argument(
        "--cycle-time",
        type=_number,
        metavar="MS",
        help=f"of {_TUNED}, instead of what `tune` has found",
    )
    parser.add_argument(
        "--autotune",
        action="store_true",
        help=f"hvd_p3 searches its settings first, in {systems.AUTOTUNE_STEPS} steps",
    )
    parser.add_argument(
        "--slice-kib", nargs="+", type=int, default=[120], metavar="KIB", help="for micro"
    )
    parser.add_argument(
        "--credit-kib", nargs="+", type=int, default=[768], metavar="KIB", help="for micro"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="folder (default: build/bench, and build/bench-full with --full)",
    )
    parsed = parser.parse_args(arguments)
    for option, commands in _USED_BY.items():
        if parsed.command not in commands and getattr(parsed, option) != parser.get_default(option):
            parser.error(
                f"--{option.replace('_', '-')} is for {' and '.join(commands)}, which "
                f"{parsed.command} is not"
            )
    if parsed.bandwidth is None:
        parsed.bandwidth = shadow.BANDWIDTH_GBIT if parsed.command == "shadow" else 1.0
    if parsed.output is None:
        parsed.output = Path("build/bench-full" if parsed.full else "build/bench")
    _fill_in_steps(parsed)
    _check(parser, parsed)
    return parsed


def _number(text):
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_number.__name__ = "number"  # as argparse names it in a message


def _fill_in_steps(parsed):
    if parsed.steps_per_execution is None:
        # The search counts executions.
        one_by_one = parsed.command != "compare" or parsed.autotune
        parsed.steps_per_execution = 1 if one_by_one else 8
    several = parsed.steps_per_execution
    if parsed.warmup is None:
        parsed.warmup = 2 if several == 1 else several
    if parsed.steps is None:
        parsed.steps = 5 if several == 1 else several


def _add_choices(parser, option, choices, text):
    parser.add_argument(
        option,
        nargs="+",
        choices=choices,
        metavar="NAME",
        help=f"{text}: {', '.join(choices)}",
    )


def _check(parser, parsed):
    if parsed.turns < 1 or not parsed.seconds > 0:
        parser.error("--turns must be at least 1 and --seconds above 0")
    if parsed.hosts < 2:
        parser.error(f"--hosts must be at least 2, received {parsed.hosts}")
    several = parsed.steps_per_execution
    if several < 1 or parsed.warmup % several or parsed.steps % several:
        parser.error(
            "--steps-per-execution must be at least 1, and --warmup and --steps multiples of it; "
            f"they are {several}, {parsed.warmup} and {parsed.steps}"
        )
    if not parsed.bandwidth > 0 or parsed.steps < 2 or parsed.warmup < 1:
        parser.error("--bandwidth must be above 0, --steps at least 2 and --warmup at least 1")
    if parsed.ratios and not min(parsed.ratios) > 0:
        parser.error(f"--ratios must be above 0, received {min(parsed.ratios)}")
    if parsed.fusion_threshold is not None and parsed.fusion_threshold < 0:
        parser.error(f"--fusion-threshold must not be negative, received {parsed.fusion_threshold}")
    if parsed.cycle_time is not None and not parsed.cycle_time > 0:
        parser.error(f"--cycle-time must be above 0, received {parsed.cycle_time:g}")
    if min(parsed.slice_kib) < 1 or min(parsed.credit_kib) < max(parsed.slice_kib):
        parser.error("--slice-kib must be at least 1, and no --credit-kib below a slice")
    other = set(parsed.models or ()) - set(model_tables.names())
    if other and parsed.command != "compare":
        parser.error(f"{parsed.command} replays models with layers; {min(other)} has none")
    reduce_tensors = {each.name for each in experiments.TENSORS}
    if other & set(experiments.TENSOR_COUNTS) and set(parsed.systems or ()) - reduce_tensors:
        parser.error(
            f"{' and '.join(experiments.TENSOR_COUNTS)} have no model to train, which only "
            f"{', '.join(sorted(reduce_tensors))} do without"
        )
    if parsed.command == "tune" and not set(parsed.systems or ()) <= set(_TUNED_NAMES):
        parser.error(f"tune searches the settings of {_TUNED}")
    if parsed.experiments and not parsed.full:
        parser.error("--experiments chooses among those of --full: add --full")


def choose(arguments):
    """Returns the experiments that the arguments ask for, as a list.

    Models, ratios and systems replace those of the experiment in which they vary, and choose among
    those of the others.

    Args:
        arguments: As `parse` returns them.

    Raises:
        SystemExit: If nothing is left to measure.
    """
    bandwidth = arguments.bandwidth * experiments.GIGABIT
    planned = (experiments.full if arguments.full else experiments.short)(
        arguments.hosts, bandwidth
    )
    chosen = []
    for each in planned:
        if arguments.experiments and each.name not in arguments.experiments:
            continue
        varied = each.name == experiments.VARIED
        models = _only(each.models, arguments.models, varied)
        without_model = tuple(name for name in models if name in experiments.TENSOR_COUNTS)
        with_model = tuple(name for name in models if name not in experiments.TENSOR_COUNTS)
        among = experiments.BY_NAME if varied and arguments.systems else each.systems
        for its_models, its_systems in (
            (with_model, among),
            (without_model, experiments.TENSORS),
        ):
            selected = dataclasses.replace(
                each,
                models=its_models,
                ratios=_only(each.ratios, arguments.ratios, varied),
                systems=tuple(
                    _as_asked(system, arguments)
                    for system in its_systems
                    if not arguments.systems or system.name in arguments.systems
                ),
            )
            if selected.models and selected.ratios and selected.systems:
                chosen.append(selected)
    if not chosen:
        raise SystemExit("benchmarks: nothing is left to measure; see --help for the choices")
    return chosen


def _as_asked(system, arguments):
    if system.is_tuned:
        return systems.with_settings(system, arguments.fusion_threshold, arguments.cycle_time)
    if arguments.autotune and system.overlapped:  # by P3Callback
        return dataclasses.replace(
            system, environment={**system.environment, "HVD_P3_AUTOTUNE": "1"}
        )
    return system


def _only(values, wanted, varied):
    if not wanted:
        return values
    return tuple(wanted) if varied else tuple(value for value in values if value in wanted)
