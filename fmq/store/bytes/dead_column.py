"""The column of dead letters, in an extension: as which message, when and why each one failed.

Dead letters and replayed messages have it. Of each message, one after another:

    u64  number of the dead letter plus 1; 0 if its number is its offset
    i64  time when it became one
    u32  attempts
    u64  offset of the message that failed
    i64  its time
    u64  position of its record
    u16  its queue
    u16  bytes of the reason
    u8   bytes of topic, tx_id and producer, three bytes; then these texts and the reason
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from fmq.basics.message import Origin
from fmq.store.bytes.extension import decode_extension
from fmq.store.bytes.record import BadRecord

ORIGINS = 5  # the number of the column with these failures
ENTRY = Struct("<QqIQqQHHBBB")
REASON_BYTES_MAX = 1024


class Failure(NamedTuple):
    """Where a message failed, how often it was tried, and why it failed."""

    number: int | None
    """Of its dead letter; None: the offset of the dead letter."""
    time_us: int
    """When it became a dead letter."""
    attempts: int
    offset: int
    origin: Origin
    reason: str


def encode_failures(failures: Iterable[Failure]) -> bytes:
    """Return the column with `failures`, one for each message of a record."""
    parts = []
    for number, time_us, attempts, offset, origin, reason in failures:
        texts = [
            each.encode()
            for each in (origin.topic, origin.tx_id or "", origin.producer or "", reason)
        ]
        topic, tx_id, producer, said = texts
        parts.append(
            ENTRY.pack(
                *(0 if number is None else number + 1, time_us, attempts, offset),
                *(origin.time_us, origin.position, origin.queue, len(said)),
                *(len(topic), len(tx_id), len(producer)),
            )
        )
        parts += texts
    return b"".join(parts)


def failures_in(extension: bytes, count: int) -> list[Failure] | None:
    """Return the failures of the `count` messages of a record; None if the extension has no such
    column. Raises BadRecord.
    """
    data = decode_extension(extension).get(ORIGINS) if extension else None
    if data is None:
        return None
    found = []
    at = 0
    try:
        for _ in range(count):
            fields = ENTRY.unpack_from(data, at)
            number, time_us, attempts, offset, sent_us, position, queue, *sizes = fields
            at += ENTRY.size
            said, *names = sizes
            texts = []
            for size in (*names, said):
                texts.append(data[at : at + size].decode())
                at += size
            topic, tx_id, producer, reason = texts
            origin = Origin(topic, queue, position, sent_us, tx_id or None, producer or None)
            place = number - 1 if number else None
            found.append(Failure(place, time_us, attempts, offset, origin, reason))
    except (StructError, UnicodeDecodeError) as error:
        raise BadRecord(f"where messages failed cannot be read: {error}") from None
    if at != len(data):
        raise BadRecord("where messages failed does not fill its column")
    return found


def reasons_in(column: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Yield where the reason of each of `count` messages begins and ends in a sound column."""
    at = 0
    for _ in range(count):
        said, *names = ENTRY.unpack_from(column, at)[7:]
        at += ENTRY.size + sum(names)
        yield at, at + said
        at += said


def short_reason(reason: str) -> str:
    """Return `reason`, cut to the size of its field."""
    data = reason.encode("utf-8", "replace")
    return data[:REASON_BYTES_MAX].decode("utf-8", "ignore")
