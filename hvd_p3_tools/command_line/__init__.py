"""The command `hvd-p3`. Each subcommand is a module of this package with two functions:
`add_arguments(parser)`, and `run(arguments)`, which raises `CommandError` where it cannot go on.
"""

import argparse
import os
import sys

from hvd_p3_tools.command_line import doctor, plan, profile, simulate, timeline
from hvd_p3_tools.command_line.errors import CommandError

_SUBCOMMANDS = {
    "doctor": doctor,
    "plan": plan,
    "profile": profile,
    "simulate": simulate,
    "timeline": timeline,
}


def main(arguments=None):
    """Runs the command.

    Args:
        arguments: list of str, or None for those of the process.

    Returns:
        The exit code: 0, or 1 after an error, of which one line is on standard error. Wrong
        arguments end the process with code 2.
    """
    parser = argparse.ArgumentParser(prog="hvd-p3", description="Tools for hvd_p3.")
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for name, module in _SUBCOMMANDS.items():
        summary = module.__doc__.splitlines()[0]
        module.add_arguments(subparsers.add_parser(name, help=summary, description=summary))
    parsed = parser.parse_args(arguments)
    try:
        _SUBCOMMANDS[parsed.subcommand].run(parsed)
    except CommandError as error:
        print(f"hvd-p3 {parsed.subcommand}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
