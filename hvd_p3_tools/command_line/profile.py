"""Measures a model on this device, for `hvd-p3 plan` and `hvd-p3 simulate`.

Runs a training program up to its first call of `model.fit`, and measures instead of training: each
layer, the update and the input; on several ranks, as with `horovodrun -np 2 hvd-p3 profile
train.py`, all-reduces too.
"""

import argparse
import os
import sys

from hvd_p3_tools.command_line import planning
from hvd_p3_tools.command_line.errors import CommandError


def add_arguments(parser):
    parser.add_argument(
        "--output",
        default="profile.json",
        metavar="FILE",
        help="where to write the profile (default: %(default)s)",
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="examples of a rank, if the program trains on arrays (default: as in the program)",
    )
    parser.add_argument("program", help="a Python program that calls model.fit")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="of the program")


def run(arguments):
    planning.import_planner()
    if arguments.batch is not None and arguments.batch < 1:
        raise CommandError(f"--batch must be at least 1. Received: {arguments.batch}")
    if not os.path.isfile(arguments.program):
        raise CommandError(f"there is no program {arguments.program}")
    try:
        from hvd_p3 import process
        from hvd_p3.planner.script import profile_script
    except ImportError as error:
        raise CommandError(f"hvd_p3 cannot be imported: {error}; see `hvd-p3 doctor`") from None
    from hvd_p3_tools.planner import profile_file
    from hvd_p3_tools.planner.errors import PlannerError

    try:
        profile = profile_script(arguments.program, arguments.arguments, arguments.batch)
    except PlannerError as error:
        raise CommandError(str(error)) from None
    if process.is_initialized() and process.rank() != 0:
        return
    try:
        profile_file.write(profile, arguments.output)
    except OSError as error:
        raise CommandError(
            f"cannot write {arguments.output} ({error.strerror}); use --output"
        ) from None
    _print(profile, arguments.output)


def _print(profile, path):
    from hvd_p3_tools.planner import units

    console, table_type = planning.import_rich()
    table = table_type(title=f"{profile.name}, {profile.batch} examples a step")
    table.add_column("layer")
    for heading in ("forward", "backward", "parameters", "activations, one example"):
        table.add_column(heading, justify="right")
    for layer in profile.layers:
        table.add_row(
            layer.name,
            units.print_duration(layer.forward_s),
            units.print_duration(layer.backward_s),
            units.print_size(layer.bytes),
            units.print_size(layer.activation_bytes),
        )
    console.print(table)
    console.print(
        f"Update {units.print_duration(profile.update_s)}, waiting for input "
        f"{units.print_duration(profile.input_s)}, step on one rank "
        f"{units.print_duration(profile.compute_s)}.",
        highlight=False,
    )
    fit = profile.all_reduce
    if fit is not None:
        console.print(
            f"All-reduce on {fit.ranks} ranks: {units.print_duration(fit.latency_s)} and "
            f"{units.print_bandwidth(fit.bytes_per_s)}, with a median error of "
            f"{100 * fit.relative_error:.0f} %.",
            highlight=False,
        )
        if fit.hosts == 1:
            print(f"hvd-p3: warning: {planning.one_host_warning(fit)}", file=sys.stderr)
    console.print(f"Written: {path}", soft_wrap=True, highlight=False)
