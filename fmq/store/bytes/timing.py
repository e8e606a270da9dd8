"""When the messages of a record are due, as a column of its extension.

    number  column
    6       i64 due, microseconds since 1970; u64 number of the timer: 0 in its first record, and
            the position of that one where it is carried forward

A TIMER always has it. A PRE_MESSAGE has it if its commit writes a TIMER, and a MESSAGE if it
publishes one. In a frame of a client the number may be FROM_NOW. Then the time counts from the
moment when the engine gets the frame.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from fmq.store.bytes.extension import decode_extension, encode_extension
from fmq.store.bytes.record import BadRecord

TIMING = 6
TIMING_COLUMN = Struct("<qQ")
# An extension with only this column, as most delayed messages have.
ALONE = Struct("<BIqQI")
TIMING_BYTES = ALONE.size
# Says that a delay counts from now. No timer has this number, because records begin at multiples of
# 8.
FROM_NOW = 1


class Timing(NamedTuple):
    """The due time of a timer, and its number."""

    due_us: int
    number: int = 0


def timing_in(extension: bytes) -> Timing | None:
    """Return the timing in an extension; None if there is none. Raises BadRecord."""
    if not extension:
        return None
    if len(extension) == TIMING_BYTES and extension[0] == TIMING:
        _, size, due_us, number, _ = ALONE.unpack(extension)
        if size == TIMING_COLUMN.size and due_us >= 0:
            return Timing(due_us, number)
    column = decode_extension(extension).get(TIMING)
    if column is None:
        return None
    if len(column) != TIMING_COLUMN.size:
        raise BadRecord(f"a timing of {len(column)} bytes")
    timing = Timing(*TIMING_COLUMN.unpack(column))
    if timing.due_us < 0:
        raise BadRecord(f"a timer that is due at {timing.due_us}")
    return timing


def with_timing(extension: bytes, timing: Timing | None) -> bytes:
    """Return the extension with `timing` in place of its own; None removes it."""
    if timing is not None and not extension:
        return ALONE.pack(TIMING, TIMING_COLUMN.size, *timing, TIMING_BYTES)
    if timing is None and len(extension) == TIMING_BYTES and extension[0] == TIMING:
        return b""
    columns = decode_extension(extension) if extension else {}
    columns.pop(TIMING, None)
    if timing is not None:
        columns[TIMING] = TIMING_COLUMN.pack(*timing)
    return encode_extension(columns)
