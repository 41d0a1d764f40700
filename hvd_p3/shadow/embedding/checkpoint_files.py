"""The files of a checkpoint of tables: two or more per owner, and an index.

A checkpoint is a folder with

- `index.json`: which tables there are, how each is partitioned, and the files of each owner;
- for each table and owner `TABLE.TOKEN.OWNER-of-RANKS.values.npy`, the owner's rows in its own
  order, and one file for each state of the optimizer, such as `….accumulator.npy`.

TOKEN differs between checkpoints. The index is replaced last and in one go, so a folder holds a
complete checkpoint at any time: the one before, until the new one is complete.
"""

import hashlib
import json
import os
import re
from pathlib import Path

import keras
import numpy as np

from hvd_p3.shadow.embedding import partition
from hvd_p3.shadow.embedding.shard import VALUES

_INDEX = "index.json"
_FORMAT = "hvd_p3 embeddings"
_VERSION = 1


def write_part(folder, token, table, rank):
    """Writes one owner's part of a table.

    Args:
        folder: Path. Made if it does not exist.
        token: str. The same for all parts of the checkpoint, and for no other in this folder.
        table: `ShardedTable`.
        rank: int. The owner.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with table.shard.lock:
        for name, array in table.shard.arrays().items():
            with open(folder / _file_name(table.name, token, rank, table, name), "wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())


def write_index(folder, token, tables):
    """Makes the parts that all owners have written the checkpoint of the folder.

    Files of the checkpoint before are deleted.

    Args:
        folder: Path.
        token: str, as given to `write_part`.
        tables: List of `ShardedTable`.

    Raises:
        FileNotFoundError: If a part cannot be seen from this process.
    """
    folder = Path(folder)
    index = {"format": _FORMAT, "version": _VERSION, "tables": {}}
    for table in tables:
        names = list(table.shard.arrays())
        owners = range(table.partition.ranks)
        index["tables"][table.name] = {
            "rows": table.rows,
            "width": table.width,
            "dtype": table.dtype.name,
            "partition": table.partition.kind,
            "ranks": table.partition.ranks,
            "optimizer": keras.saving.serialize_keras_object(table.optimizer),
            "files": [
                {name: _file_name(table.name, token, owner, table, name) for name in names}
                for owner in owners
            ],
        }
    new = _files_of(index)
    for name in new:
        if not (folder / name).exists():
            raise FileNotFoundError(
                f"{folder / name}, which another rank has written, cannot be seen on rank 0: save "
                "embeddings in a folder that all hosts share."
            )
    old = _files_of(read_index(folder)) if (folder / _INDEX).exists() else set()
    being_written = folder / f"{_INDEX}.{token}"
    with open(being_written, "w") as file:
        json.dump(index, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(being_written, folder / _INDEX)
    for name in old - new:
        (folder / name).unlink(missing_ok=True)


def read_index(folder):
    """Returns the index of a checkpoint; raises `ValueError` if there is none to be understood."""
    path = Path(folder) / _INDEX
    try:
        index = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(
            f"There is no checkpoint of embeddings in {folder}: it has no {_INDEX}."
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is no index of embeddings: {error}") from None
    if index.get("format") != _FORMAT or index.get("version") != _VERSION:
        raise ValueError(
            f"{path} has format {index.get('format')!r}, version {index.get('version')!r}. This "
            f"version of hvd_p3 reads {_FORMAT!r}, version {_VERSION}."
        )
    return index


def read_part(folder, index, table, rank, optimizer_state=True):
    """Reads what one owner owns now, whoever owned it when it was saved.

    Args:
        folder: Path.
        index: What `read_index` has returned.
        table: `ShardedTable`. Not changed.
        rank: int. The owner.
        optimizer_state: bool. Whether the state of the optimizer is read.

    Returns:
        A dict of arrays for `Shard.replace`.

    Raises:
        ValueError: If the checkpoint has no such table, one of another shape, no state that the
            optimizer needs, or a file that cannot be read.
    """
    saved = index["tables"].get(table.name)
    if saved is None:
        raise ValueError(
            f"The checkpoint in {folder} has no table for layer '{table.name}'. It has: "
            f"{', '.join(sorted(index['tables'])) or 'none'}. Give the layer the same name."
        )
    if (saved["rows"], saved["width"]) != (table.rows, table.width):
        raise ValueError(
            f"Layer '{table.name}' has {table.rows} rows of {table.width} columns, and the "
            f"checkpoint in {folder} has {saved['rows']} rows of {saved['width']}."
        )
    names = [VALUES, *(table.optimizer.state_names if optimizer_state else ())]
    missing = sorted(set(names) - set(saved["files"][0]))
    if missing:
        raise ValueError(
            f"The checkpoint in {folder} was saved with {saved['optimizer']['class_name']} and has "
            f"no {', '.join(missing)} for the {type(table.optimizer).__name__} of layer "
            f"'{table.name}'. Load it with optimizer_state=False to start with a new state."
        )
    before = partition.make(saved["partition"], table.rows, table.width, saved["ranks"])
    now = table.partition
    columns = now.columns_of(rank)
    rows = np.arange(table.rows, dtype=np.int64)[now.rows_of(rank)]
    result = {
        name: np.empty_like(array) for name, array in table.shard.arrays().items() if name in names
    }
    for owner, positions, numbers in before.split(rows):
        of_owner = before.columns_of(owner)
        common = slice(max(columns.start, of_owner.start), min(columns.stop, of_owner.stop))
        for name, array in result.items():
            part = _open(Path(folder) / saved["files"][owner][name])
            if name != VALUES:
                array[positions] = part[numbers]
            elif common.start < common.stop:
                array[positions, _moved(common, columns)] = part[numbers, _moved(common, of_owner)]
    return result


def _moved(columns, within):
    return slice(columns.start - within.start, columns.stop - within.start)


def _open(path):
    try:
        return np.load(path, mmap_mode="r")  # only the rows that are needed are read
    except (OSError, ValueError, EOFError) as error:  # EOFError: an empty file
        raise ValueError(f"{path}, a part of a checkpoint, cannot be read: {error}") from None


def _file_name(table_name, token, owner, table, array_name):
    safe = re.sub(r"[^\w.-]", "_", table_name)
    if safe != table_name:  # another table may have this name, or come to it as well
        digest = hashlib.blake2b(table_name.encode(), digest_size=4).hexdigest()
        safe = f"{safe}-{digest}"
    return f"{safe}.{token}.{owner}-of-{table.partition.ranks}.{array_name}.npy"


def _files_of(index):
    return {
        name
        for table in index["tables"].values()
        for of_owner in table["files"]
        for name in of_owner.values()
    }
