"""What ranks write to each other about tables.

A request is a header of 40 bytes, the row numbers (int64), and for an update the row statistics, if
the optimizer has any, and the gradients. A reply is a header of 8 bytes and the rows, or a text.
All numbers are little-endian.
"""

import struct
import typing

import numpy as np

# Tags on the channel. Replies have tags of their own, one for each conversation.
REQUEST_TAG = 0
FIRST_REPLY_TAG = 1
LAST_REPLY_TAG = 32767

# Kinds of requests.
LOOKUP = 1  # answered with rows
UPDATE = 2  # not answered
FLUSH = 3  # answered once all earlier updates of the sender are applied
ALIVE = 4  # the sender is alive; answered with ALIVE_TOO, for which nobody waits
ALIVE_TOO = 5
DONE = 6  # the sender will ask nothing more
GONE = 7  # the sender will answer nothing more

# Kinds of replies.
OK = 0
UNKNOWN_TABLE = 1  # not made yet
OTHER_TABLE = 2  # made with other arguments; the text says with which
FAILED = 3  # the text says why

_REQUEST = struct.Struct("<BB2xiQQQd")  # kind, flags, reply tag, table, arguments, rows, rate
_REPLY = struct.Struct("<B7x")

_HAS_STATISTIC = 1
_FLOAT64 = 2


class Request(typing.NamedTuple):
    """A decoded request. Arrays share the message's memory and are read-only."""

    kind: int
    reply_tag: int = 0
    table: int = 0  # which table, see `TableDescription`
    arguments: int = 0  # how it was made
    rows: np.ndarray = np.empty(0, np.int64)  # the owner's numbers of rows
    statistic: np.ndarray | None = None
    gradients: np.ndarray | None = None
    learning_rate: float = 0.0


def encode_request(request):
    """Returns the bytes of a `Request`."""
    flags = 0
    parts = [request.rows.astype("<i8", copy=False).tobytes()]
    if request.gradients is not None:
        flags |= _FLOAT64 if request.gradients.dtype == np.float64 else 0
        if request.statistic is not None:
            flags |= _HAS_STATISTIC
            parts.append(request.statistic.tobytes())
        parts.append(request.gradients.tobytes())
    header = _REQUEST.pack(
        request.kind,
        flags,
        request.reply_tag,
        request.table,
        request.arguments,
        len(request.rows),
        request.learning_rate,
    )
    return b"".join([header, *parts])


def decode_request(message):
    """Returns the `Request` of bytes that `encode_request` made."""
    kind, flags, reply_tag, table, arguments, count, rate = _REQUEST.unpack_from(message)
    offset = _REQUEST.size
    rows = np.frombuffer(message, "<i8", count, offset)
    offset += rows.nbytes
    statistic = gradients = None
    if kind == UPDATE:
        dtype = "<f8" if flags & _FLOAT64 else "<f4"
        if flags & _HAS_STATISTIC:
            statistic = np.frombuffer(message, dtype, count, offset)
            offset += statistic.nbytes
        gradients = np.frombuffer(message, dtype, offset=offset)
        gradients = gradients.reshape(count, -1) if count else gradients.reshape(0, 0)
    return Request(kind, reply_tag, table, arguments, rows, statistic, gradients, rate)


def encode_reply(kind, payload=b""):
    """Returns the bytes of a reply. `payload` is bytes, or a str for errors."""
    if isinstance(payload, str):
        payload = payload.encode()
    return _REPLY.pack(kind) + payload


def decode_reply(message):
    """Returns (kind, payload as a memoryview) of a reply."""
    (kind,) = _REPLY.unpack_from(message)
    return kind, memoryview(message)[_REPLY.size :]
