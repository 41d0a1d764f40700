"""What a table is, in the same words on all ranks."""

import hashlib


class TableDescription:
    """Name and arguments of a table. Ranks compare its keys to find out whether they mean the same.

    Args:
        name: str. Name of the layer.
        number: int. How many tables of this name the process has made before: ranks that build the
            same layers one after the other must not take one for the other.
        arguments: str. All that ranks must agree on, to be shown where they do not.
    """

    def __init__(self, name, number, arguments):
        self.name = name
        self.arguments = arguments
        self.key = _key(f"{number}/{name}")
        self.arguments_key = _key(arguments)


def _key(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
