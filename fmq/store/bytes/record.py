"""The bytes of a record.

    offset  size  field
         0     4  magic        b"fmq" and the version of the format, 2: an odd number of bits
         4     4  head_crc     CRC-32 of the head from here on, seeded with the store
         8     4  size         length of the whole record, padding left out
        12     4  head_size    where the bodies begin
        16     8  position     the record's own address in the journal
        24     4  durable_lag  position - durable_to, as it was when this was written
        28     4  bodies_crc   CRC-32 of the bodies as they are stored
        32     1  kind         see Kind
        33     1  flags        FIRST, LAST, BOUND, EXTENDED, and those of columns.py
        34     2  queue        number of the queue, 0 where there is none
        36     *  what its kind adds, then the columns
         .     *  with the flag EXTENDED: the extension, see extension.py
 head_size     *  the bodies, in one piece

What the kinds add ("text" is UTF-8 after one byte with its length):

    MESSAGE                    place
    PRE_MESSAGE  TX_MESSAGE    u64 tx, place
    TIMER                      the same (tx may be 0), with offset 0; see timing.py
    REF_MESSAGE                u64 tx, place, u64 position of its PRE_MESSAGE
    PREPARE                    see PREPARE_HEAD, then producer, tx_id, and its acks
    COMMIT  ROLLBACK           see DECISION_HEAD, then producer, tx_id, who decided, reason
    all other kinds            their row in forms.py

    place  u64 first offset, i64 time (microseconds since 1970), u32 messages, three bytes:
           lengths of topic, producer and tx_id, these three; then, only with the flag
           COMPRESSED, u32 size of the bodies once decompressed
    ack    text: group, text: topic, u16 queue, u64 first offset, u64 end: see forms.py

Integers are little-endian. A record begins at a multiple of 8, and zeros fill the gap before it.
The records of one append follow each other. The first has the flag FIRST, the last has LAST. The
checksum covers size, kind, position and the checksum of the bodies, so a flipped bit anywhere is
noticed. Sound bytes in the wrong place are refused by their position, sound bytes of another
store by the seed.

Version 1 is read, and no longer written. It has no extensions, and its flag BOUND is the bit that
is EXTENDED now.

This module says where each field is. encoding.py writes the fields, decoding.py reads them.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

FORMAT = 2
MAGIC = b"fmq\x02"
MAGIC_1 = b"fmq\x01"
MAGICS = frozenset((MAGIC, MAGIC_1))
NAME = MAGIC[:3]  # the first bytes of all versions
assert MAGIC[3] == FORMAT
ALIGNMENT = 8

FIRST = 1
LAST = 2
BOUND = 64  # flag of a PREPARE; the flags between are in columns.py
EXTENDED = 128

PREFIX = Struct("<4sI")
COMMON = Struct("<IIQIIBBH")
PLACE = Struct("<QqIBBB")
MESSAGE_HEAD = Struct("<IIQIIBBHQqIBBB")
TX_HEAD = Struct("<IIQIIBBHQQqIBBB")
NAME_LENGTHS = "BBB"  # the lengths of a run's three names, which follow
MESSAGE_FRONT = Struct(MESSAGE_HEAD.format.removesuffix(NAME_LENGTHS))
TX_FRONT = Struct(TX_HEAD.format.removesuffix(NAME_LENGTHS))
PREPARE_HEAD = Struct("<QqqQIIQ16sqIBB")
DECISION_HEAD = Struct("<QqqQIIQ16sIBBBH")
PREPARE_COUNTS, DECISION_COUNTS = "IBB", "BBBH"  # the counts of the acks and texts that follow
PREPARE_FRONT = Struct(COMMON.format + PREPARE_HEAD.format[1:].removesuffix(PREPARE_COUNTS))
DECISION_FRONT = Struct(COMMON.format + DECISION_HEAD.format[1:].removesuffix(DECISION_COUNTS))
QUEUE_FRONT = Struct("<BBH")
ACK_RANGE = Struct("<QQ")
TRIED_RANGE = Struct("<QQIq")
CHANGE_PLACE = Struct("<HQ")
MARK_FRONT = Struct("<BQBB")
U64 = Struct("<Q")
U32 = Struct("<I")
U16 = Struct("<H")

PREFIX_BYTES = PREFIX.size
HEAD_BYTES_MIN = PREFIX.size + COMMON.size
assert HEAD_BYTES_MIN == 36, "the table above counts on it"
assert MESSAGE_HEAD.size == COMMON.size + PLACE.size
assert TX_HEAD.size == MESSAGE_HEAD.size + 8
assert PREPARE_FRONT.size == COMMON.size + PREPARE_HEAD.size - 6
assert DECISION_FRONT.size == COMMON.size + DECISION_HEAD.size - 5

RECORD_BYTES_MAX = 1 << 31
LAG_UNKNOWN = 0xFFFFFFFF
PADDING = tuple(bytes(-size % ALIGNMENT) for size in range(ALIGNMENT))


class BadRecord(Exception):
    """Raised for bytes that are not a sound record, torn or damaged."""


class BodiesDamaged(BadRecord):
    """Raised for a sound head whose bodies are not those that the head describes."""


class Misplaced(Exception):
    """Raised for a sound record that belongs at another position."""

    def __init__(self, position: int) -> None:
        super().__init__(f"a sound record that belongs at {position}")


class Newer(Exception):
    """Raised for a sound record of a later version or an unknown kind."""


@lru_cache(maxsize=4096)
def utf8(text: str) -> bytes:
    """Return `text` as UTF-8. Cached, because a few names are used all the time."""
    return text.encode()


def aligned(size: int) -> int:
    """Return `size` rounded up, padding included."""
    return size + -size % ALIGNMENT
