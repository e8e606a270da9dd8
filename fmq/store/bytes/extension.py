"""The extension of a record: columns that a reader may skip.

An extension is the last part of the head, so a reader that wants nothing of it finds all else where
it is without one:

    offset  size  field
         0     1  number      of the column: 1 is REQUEST, the others are in extras.py
         1     4  size        of its bytes
         5     *  its bytes; then the next column
         .     4  the size of the whole extension, these four bytes included

What every reader must understand is no column of an extension, but a kind of record or a version of
the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from fmq.store.bytes.record import BadRecord

COLUMN = Struct("<BI")
SIZE = Struct("<I")
# The column with the request of a client that the record carries out.
REQUEST = 1
REQUEST_COLUMN = Struct("<16sQHI")
# the size of an extension with no other column
REQUEST_BYTES = COLUMN.size + REQUEST_COLUMN.size + SIZE.size
FIRST_IS_REQUEST = bytes((REQUEST,))
WAITING_MAX = 1023
# The column of an ACK that says: these messages had expired, so the group has not seen them.
EXPIRED = 8


class Request(NamedTuple):
    """A request of a client in another process, which may arrive twice.

    The client has no answer yet to the `waiting` requests before it. A record may carry out several
    requests of one message each; then `sequence` is that of the first.
    """

    client: bytes
    sequence: int
    waiting: int
    requests: int = 1


def extension_of(request: Request, extension: bytes = b"") -> bytes:
    """Return the extension of a record that carries out `request`, with the columns of `extension`
    added.
    """
    said = {REQUEST: REQUEST_COLUMN.pack(*request)}
    return encode_extension(said | decode_extension(extension) if extension else said)


def without_request(extension: bytes) -> bytes:
    """Return the extension without its request, for another record with the same messages."""
    if is_request_only(extension):
        return b""
    if len(extension) < REQUEST_BYTES:
        return extension  # too short to have a request
    columns = decode_extension(extension)
    columns.pop(REQUEST, None)
    return encode_extension(columns)


def is_request_only(extension: bytes) -> bool:
    """Return whether the extension says nothing about messages. This decodes nothing."""
    return len(extension) == REQUEST_BYTES and extension[0] == REQUEST


def request_in(extension: bytes) -> Request | None:
    """Return the request in an extension; None if there is none. Raises BadRecord."""
    if len(extension) < REQUEST_BYTES and extension[:1] != FIRST_IS_REQUEST:
        return None  # too short for a request after another column
    column = decode_extension(extension).get(REQUEST)
    if column is None:
        return None
    if len(column) != REQUEST_COLUMN.size:
        raise BadRecord(f"a request of {len(column)} bytes")
    return Request(*REQUEST_COLUMN.unpack(column))


def encode_extension(columns: Mapping[int, bytes]) -> bytes:
    """Return the extension with `columns`, by number; b"" if there are none."""
    if not columns:
        return b""
    parts = [COLUMN.pack(number, len(data)) + data for number, data in columns.items()]
    size = SIZE.size + sum(map(len, parts))
    return b"".join((*parts, SIZE.pack(size)))


def extension_before(data: bytes, start: int, end: int) -> bytes:
    """Return the extension that ends at `data[end]`, in a head whose own fields begin at
    `start`.
    """
    if end - SIZE.size < start:
        raise BadRecord("too little room for an extension")
    (size,) = SIZE.unpack_from(data, end - SIZE.size)
    if not SIZE.size <= size <= end - start:
        raise BadRecord(f"an extension of {size} bytes, where {end - start} are left")
    return data[end - size : end]


def decode_extension(extension: bytes) -> dict[int, bytes]:
    """Return the columns of an extension, by number. Raises BadRecord unless they fill it
    exactly.
    """
    columns = {}
    at, end = 0, len(extension) - SIZE.size
    while at < end:
        if at + COLUMN.size > end:
            raise BadRecord("a column of an extension is cut short")
        number, size = COLUMN.unpack_from(extension, at)
        at += COLUMN.size + size
        if at > end:
            raise BadRecord("a column of an extension is cut short")
        columns[number] = extension[at - size : at]
    return columns


def column_in(extension: bytes, number: int) -> tuple[int, int] | None:
    """Return where the column `number` begins and ends in a sound extension; None if there is
    none.
    """
    at, end = 0, len(extension) - SIZE.size
    while at < end:
        found, size = COLUMN.unpack_from(extension, at)
        at += COLUMN.size
        if found == number:
            return at, at + size
        at += size
    return None


EXPIRED_ACKS = encode_extension({EXPIRED: b""})
"""The extension of an ACK of messages that had expired."""
