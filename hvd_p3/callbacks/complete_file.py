"""Files that are complete or not there, whenever the process ends."""

import contextlib
import os
import shutil

# Stores of objects, whose files appear when they are complete, and which have no other rename.
_REMOTE_MARK = "://"


@contextlib.contextmanager
def replacing(path):
    """Gives a path to write to, and puts what was written in the place of `path` at the end.

    That path is in a folder beside the file, `path` with `.partial` added, and ends in the file's
    own name, by which Keras knows the format. A process that is killed leaves the folder behind,
    which the next writer of the same file uses again. After an error nothing is replaced.

    Args:
        path: str. The folder must exist.

    Example:

    ```python
    with replacing("model.keras") as path:
        model.save(path)
    ```
    """
    if _REMOTE_MARK in path:
        yield path
        return
    path = os.path.realpath(path)  # a link stays one
    folder = path + ".partial"
    os.makedirs(folder, exist_ok=True)
    try:
        written = os.path.join(folder, os.path.basename(path))
        yield written
        with open(written, "rb") as file:
            os.fsync(file.fileno())  # the content, before the name: the machine may fail too
        os.replace(written, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
