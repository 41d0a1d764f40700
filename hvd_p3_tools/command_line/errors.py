"""How a subcommand says that it cannot go on."""


class CommandError(Exception):
    """Its message is one line for the user: what was received, and what to do."""


def needs(package, error):
    """Returns the error for a package of the extra `tools` that cannot be imported.

    Args:
        package: str, its name.
        error: The `ImportError`.
    """
    return CommandError(
        f"the package {package} cannot be imported ({error}); install it with "
        "`pip install matplotlib pint rich scipy`, or hvd_p3 with its extra `tools`"
    )
