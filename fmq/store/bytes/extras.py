"""The extras of messages (id, priority and expiry), as columns of the record's extension.

    number  column, only where a message of the record uses it
    2       ids         as a column of texts: u32, the bytes of the text; n x u16, the length of
                        each (0xFFFF: none); the text
    3       priorities  n x u8: 0 to 9 (0xFF: none)
    4       expiries    n x i64: microseconds since 1970 (the largest: never)
    7       no bytes    the ids were taken by another record, of which this one is a copy

So a message without extras costs no byte, and a reader of bodies does not meet them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from fmq.basics.clock import as_datetime, as_us
from fmq.errors import BadName, BadOption
from fmq.store.bytes.extension import decode_extension, encode_extension, is_request_only
from fmq.store.bytes.pieces import NONE, U32, BadColumns, Pieces, array_in, text_pieces
from fmq.store.bytes.record import BadRecord
from fmq.store.bytes.timing import TIMING

MESSAGE_IDS = 2
PRIORITIES = 3
EXPIRIES = 4
IDS_TAKEN = 7
MESSAGE_COLUMNS = frozenset((MESSAGE_IDS, PRIORITIES, EXPIRIES, TIMING))
ID_BYTES_MAX = 255
PRIORITY_MAX = 9
NO_PRIORITY = 0xFF
NEVER = (1 << 63) - 1
KNOWN_PRIORITIES = bytes((*range(PRIORITY_MAX + 1), NO_PRIORITY))
LEVELS = bytes.maketrans(bytes((NO_PRIORITY,)), b"\0")
"""A message without a priority comes with those of priority 0."""
# What one message adds to these columns besides the text of its id.
EXTRA_BYTES = 2 + 1 + 8


def has_extras(extension: bytes) -> bool:
    """Return whether an extension may have extras."""
    return bool(extension) and not is_request_only(extension)


def check_message_columns(extension: bytes) -> None:
    """Raise BadColumns unless a client's extension has columns about messages only."""
    try:
        columns = decode_extension(extension)
    except BadRecord as error:
        raise BadColumns(str(error)) from None
    if (
        not columns
        or not columns.keys() <= MESSAGE_COLUMNS
        or encode_extension(columns) != extension
    ):
        raise BadColumns(f"an extension with the columns {[*columns]}")


class Extras:
    """The extras of the messages of one record, decoded at the first use."""

    __slots__ = ("_ids", "expiries_us", "priority_bytes")

    def __init__(self, extension: bytes, count: int) -> None:
        """`extension` belongs to a record of `count` messages. Raises BadColumns."""
        try:
            columns = decode_extension(extension) if extension else {}
        except BadRecord as error:
            raise BadColumns(str(error)) from None
        self._ids: Pieces | None = None
        self.priority_bytes: bytes | None = columns.get(PRIORITIES)
        self.expiries_us: array[int] | None = None
        ids, expiries = columns.get(MESSAGE_IDS), columns.get(EXPIRIES)
        if ids is not None:
            self._ids = text_pieces(ids, 0, count)
            if self._ids.end != len(ids):
                raise BadColumns("the column of message ids does not add up")
        if self.priority_bytes is not None and len(self.priority_bytes) != count:
            raise BadColumns(f"{len(self.priority_bytes)} priorities of {count} messages")
        if self.priority_bytes is not None and self.priority_bytes.strip(KNOWN_PRIORITIES):
            raise BadColumns("a priority that is none")
        if expiries is not None:
            if len(expiries) != 8 * count:
                raise BadColumns(f"{len(expiries)} bytes of expiries of {count} messages")
            self.expiries_us = array_in("q", expiries, 0, count)

    @property
    def id_pieces(self) -> Pieces | None:
        """Return the ids as pieces, as they are on disk; None if the record has no ids."""
        return self._ids

    def ids(self, first: int, last: int) -> list[str | None] | None:
        """Return the ids from number `first` up to `last`; None if the record has no ids."""
        return None if self._ids is None else self._ids.texts(first, last)

    def priorities(self, first: int, last: int) -> list[int | None] | None:
        """Return the priorities from number `first` up to `last`; None if the record has no
        priorities.
        """
        found = self.priority_bytes
        if found is None:
            return None
        return [None if each == NO_PRIORITY else each for each in found[first:last]]

    def levels(self, first: int, last: int) -> bytes | None:
        """Return the priorities from number `first` up to `last` as bytes, 0 for a message without
        one; None if the record has no priorities.
        """
        found = self.priority_bytes
        return None if found is None else found[first:last].translate(LEVELS)

    def expiries(self, first: int, last: int) -> list[datetime | None] | None:
        """Return the expiries from number `first` up to `last`; None if the record has no
        expiries.
        """
        found = self.expiries_us
        if found is None:
            return None
        return [None if each == NEVER else as_datetime(each) for each in found[first:last]]

    def check(self) -> None:
        """Raise BadColumns for columns that fmq cannot have written."""
        if self._ids is not None:
            lengths = self._ids.part(0, NONE << 16).lengths
            if lengths is not None and any(
                each != NONE and not 0 < each <= ID_BYTES_MAX for each in lengths
            ):
                raise BadColumns("a message id of an impossible size")
            self._ids.texts(0, NONE << 16)


def with_ids_taken(extension: bytes) -> bytes:
    """Return the extension for a copy of the record. The copy says that any ids are taken
    already.
    """
    columns = decode_extension(extension) if extension else {}
    if MESSAGE_IDS not in columns or IDS_TAKEN in columns:
        return extension
    return encode_extension(columns | {IDS_TAKEN: b""})


def ids_only(extension: bytes) -> bytes:
    """Return an extension with the ids of `extension`; b"" if it has none."""
    ids = decode_extension(extension).get(MESSAGE_IDS)
    return b"" if ids is None else encode_extension({MESSAGE_IDS: ids})


NO_EXTRAS = Extras(b"", 0)


def encode_extras(
    ids: Sequence[str | None],
    priorities: Sequence[int | None],
    expiries: Sequence[datetime | None],
) -> bytes:
    """Return the extension for messages with these ids, priorities and expiries; b"" if they have
    none.

    Raises TypeError, BadName or BadOption.
    """
    columns: dict[int, bytes] = {}
    if ids.count(None) != len(ids):
        columns[MESSAGE_IDS] = _encode_ids(ids)
    if priorities.count(None) != len(priorities):
        columns[PRIORITIES] = bytes(map(_priority_byte, priorities))
    if expiries.count(None) != len(expiries):
        columns[EXPIRIES] = array("q", map(_expiry_us, expiries)).tobytes()
    return encode_extension(columns)


def _encode_ids(ids: Iterable[str | None]) -> bytes:
    encoded = [None if each is None else id_bytes(each) for each in ids]
    lengths = array("H", (NONE if each is None else len(each) for each in encoded))
    text = b"".join(each for each in encoded if each is not None)
    return U32.pack(len(text)) + lengths.tobytes() + text


def id_bytes(message_id: Any) -> bytes:
    """Return a message id as UTF-8. Raises TypeError or BadName."""
    if not isinstance(message_id, str):
        raise TypeError(
            f"a message id is a str, not {type(message_id).__name__}. Nothing was changed."
        )
    try:
        data = message_id.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"a message id must be text that UTF-8 can write: {error}") from None
    if not 0 < len(data) <= ID_BYTES_MAX:
        raise BadName(
            f"message_id={message_id[:40]!r}: {len(data)} bytes; an id has 1 to {ID_BYTES_MAX}. "
            "Nothing was changed; a hash of something longer will do."
        )
    return data


def _priority_byte(priority: Any) -> int:
    """Return the byte of a priority. Raises TypeError or BadOption."""
    if priority is None:
        return NO_PRIORITY
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise TypeError(
            f"a priority is an int, not {type(priority).__name__}. Nothing was changed."
        )
    if not 0 <= priority <= PRIORITY_MAX:
        raise BadOption(
            f"priority={priority}: must be from 0 to {PRIORITY_MAX}, of which {PRIORITY_MAX} comes "
            "first. Nothing was changed."
        )
    return int(priority)


def _expiry_us(moment: Any) -> int:
    """Return when a message expires, in microseconds since 1970. Raises TypeError or BadOption."""
    if moment is None:
        return NEVER
    if not isinstance(moment, datetime):
        raise TypeError(
            f"expires_at is a datetime, not {type(moment).__name__}. Nothing was changed."
        )
    if moment.utcoffset() is None:
        raise BadOption(
            f"expires_at={moment}: has no time zone, so it is no moment. Nothing was changed; "
            "datetime.now(timezone.utc) + timedelta(...) has one."
        )
    return as_us(moment)
