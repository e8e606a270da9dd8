"""One file of the journal: its name and its header.

    offset  size  field
         0     4  magic           b"fmqS"
         4     4  crc             CRC-32 of the header from here on
         8     2  format          2; 1 is read, and has zeros for the epoch
        10     2  required        flags; an unknown one set: refuse
        12     4  optional        flags; an unknown one set: ignore
        16    16  store           UUID of the directory this belongs to
        32     8  base            position of the file's first byte in the journal
        40     8  capacity        bytes that the file holds, header included
        48     8  previous_end    where the data of the segment before this one ended; 0: none
        56     4  previous_chain  checksum of that segment: CRC-32 over its records' head_crc
        60     4  epoch           drawn by the engine that made it; 0: unknown

The records follow from `base + 64` on. A segment gets its name only when its header is durable,
and the next segment names the end and the checksum of the one before it. So a segment that is
not the last is sealed, durable, and known to its last byte.

Each engine draws an epoch when it opens the directory. By that, a segment is told apart from one of
the same store and place in a copy of the directory that was written to as well.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import NamedTuple

from fmq.errors import Damaged, NewerFormat

MAGIC = b"fmqS"
FORMAT = 2
HEADER = Struct("<4sIHHI16sQQQII")
HEADER_BYTES = HEADER.size
STORE_BYTES = 16  # the size of the UUID of a store, which is drawn when the journal is made
CRC_END = 8
assert HEADER_BYTES == 64, "the table above counts on it"

SUFFIX = ".seg"
CAPACITY_MAX = 1 << 30
POSITION_MAX = 1 << 62
REQUIRED_KNOWN = 0
OTHER_RECORDS = "its records are not those that the next segment names"
SEGMENT_MISSING = "the segment is missing"
OTHER_COPY = "it comes from another copy of this journal, to which an engine has written"


class Header(NamedTuple):
    """The header of a segment, about itself and about the segment before it."""

    store: bytes
    base: int
    capacity: int
    previous_end: int
    previous_chain: int
    epoch: int = 0

    def encode(self) -> bytes:
        data = HEADER.pack(
            MAGIC,
            0,
            FORMAT,
            0,
            0,
            self.store,
            self.base,
            self.capacity,
            self.previous_end,
            self.previous_chain,
            self.epoch,
        )
        return MAGIC + zlib.crc32(data[CRC_END:]).to_bytes(4, "little") + data[CRC_END:]


def decode_header(data: bytes, name: str) -> Header:
    """Return the header at the start of `data`, from the file `name`. Raises Damaged or
    NewerFormat.
    """
    base = base_of(name)
    if len(data) < HEADER_BYTES:
        raise Damaged(name, base, "shorter than a segment's header")
    magic, crc, version, required, _, store, says, capacity, end, chain, epoch = HEADER.unpack_from(
        data
    )
    if magic != MAGIC:
        raise Damaged(name, base, "not a segment of a journal")
    if zlib.crc32(data[CRC_END:HEADER_BYTES]) != crc:
        raise Damaged(name, base, "the header's checksum does not match")
    if version > FORMAT:
        raise NewerFormat(name, base, f"format {version}")
    if version < 1:
        raise Damaged(name, base, f"format {version}, which no fmq has written")
    if required & ~REQUIRED_KNOWN:
        raise NewerFormat(name, base, f"required flags {required:#x}")
    if says != base:
        raise Damaged(name, base, f"the header belongs to the segment at {says}")
    if not HEADER_BYTES < capacity <= CAPACITY_MAX or base + capacity > POSITION_MAX:
        raise Damaged(name, base, f"impossible capacity {capacity}")
    return Header(store, base, capacity, end, chain, epoch)


def segment_name(base: int, suffix: str = SUFFIX) -> str:
    """Return the name of a segment's file: its first position, so that names sort in the order of
    the journal.
    """
    return f"{base:020d}{suffix}"


def base_of(name: str) -> int:
    """Return the first position in the name of a segment, or of a file that belongs to one."""
    return int(name[:20])


def is_segment(name: str) -> bool:
    """Return whether `name` is the name of a segment."""
    return name[20:] == SUFFIX and belongs(name)


def belongs(name: str) -> bool:
    """Return whether `name` is the name of a segment or of a file that belongs to one."""
    return name[:20].isdecimal() and name[:20].isascii() and name[20:21] == "."


def capacity_at(position: int, first: int, most: int) -> int:
    """Return the capacity of a segment that begins at `position`. The first segment has the
    capacity `first`, and no segment has more than `most`.

    Each is about as large as all before it: so a few messages take little room, and a large journal
    has few files.
    """
    return min(most, max(first, 1 << position.bit_length() >> 1))


class Segment:
    """A segment of the journal.

    `end` is where its data ends; while it is being written that includes planned bytes. `chain` is
    the running checksum up to `end`.
    """

    __slots__ = ("base", "capacity", "chain", "end", "epoch", "limit")

    def __init__(self, base: int, capacity: int, end: int, chain: int, epoch: int = 0) -> None:
        self.base = base
        self.capacity = capacity
        self.limit = base + capacity  # the position after the last byte of the file
        self.end = end
        self.chain = chain
        self.epoch = epoch

    @property
    def name(self) -> str:
        return segment_name(self.base)
