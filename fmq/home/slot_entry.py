"""One entry of a home, as bytes: what fills a slot.

    offset  size  field
         0     4  magic    b"fmqH"
         4     4  crc      CRC-32 of everything after this field
         8     1  kind     see EntryKind
         9     1  last     1: an append, or several, end with this entry; 0: the next one goes on
        10     2  format   1
        12     4  term     how many machines had taken over, the owner included
        16    16  home     drawn when the home was made
        32    16  owner    drawn by the engine that has made the entry
        48     8  base     the segment: position of its first byte in the journal
        56     8  offset   the place in the segment at which the bytes belong
        64     4  size     of the bytes
        68     4  zero
        72     8  chain    BLAKE2b of the chain before and of all of this entry but crc and chain
        80     *  bytes    of the journal; for OWN and BEAT: JSON that says who has taken over

Integers are little-endian. The chain proves that entries follow each other. Two engines never make
the same bytes, because the owner is among them: so an engine that had no answer knows its own entry
when it reads it.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from fmq.errors import Damaged, NewerFormat

MAGIC = b"fmqH"
FORMAT = 1
HEAD = Struct("<4sIBBHI16s16sQQI4x8s")
HEAD_BYTES = HEAD.size
CRC_END, CHAIN_AT, CHAIN_BYTES = 8, 72, 8
NO_CHAIN = bytes(CHAIN_BYTES)
ID_BYTES = 16  # the size of the ids of homes and owners
assert HEAD_BYTES == CHAIN_AT + CHAIN_BYTES == 80, "the table above counts on it"


class EntryKind(IntEnum):
    """What an entry says. The numbers are in homes: never change or reuse one."""

    OWN = 1
    """A machine has taken over."""
    DATA = 2
    """Bytes of a segment."""
    DROP = 3
    """Retention has dropped a segment."""
    CHECKPOINT = 4
    """The owner is still the owner, and is about to raise the floor."""
    BEAT = 5
    """The owner is alive, or what its OWN says has changed: it serves at an address, or has ended.
    JSON with what is new, or no bytes."""


class SlotEntry(NamedTuple):
    """An entry that was read."""

    kind: EntryKind
    last: bool
    term: int
    home: bytes
    owner: bytes
    base: int
    offset: int
    data: bytes
    chain: bytes
    head: bytes
    """What the chain must be hashed from, besides the chain before and the data."""


def encode_entry(
    kind: EntryKind,
    term: int,
    home: bytes,
    owner: bytes,
    before: bytes,
    *,
    base: int = 0,
    offset: int = 0,
    data: bytes = b"",
    last: bool = True,
) -> bytes:
    """Return an entry as bytes. `before` is the chain of the entry before it."""
    what = kind, last, FORMAT, term, home, owner, base, offset, len(data)
    head = HEAD.pack(MAGIC, 0, *what, NO_CHAIN)[CRC_END:CHAIN_AT]
    head += chain_of(before, head, data)
    crc = zlib.crc32(data, zlib.crc32(head))
    return b"".join((MAGIC, crc.to_bytes(4, "little"), head, data))


def chain_in(entry: bytes) -> bytes:
    """Return the chain that an entry has."""
    return entry[CHAIN_AT:HEAD_BYTES]


def chain_of(before: bytes, head: bytes, data: bytes) -> bytes:
    """Return the chain of an entry that has this `data`. `head` is what lies between its crc and
    its chain.
    """
    digest = blake2b(before, digest_size=CHAIN_BYTES)
    digest.update(head)
    digest.update(data)
    return digest.digest()


def decode_entry(entry: bytes, name: str, *, is_mine: bool = False) -> SlotEntry:
    """Return the entry with the bytes `entry`, which is called `name`. Raises Damaged or
    NewerFormat. The checksum of one that this engine has just made is not looked at.
    """
    if len(entry) < HEAD_BYTES:
        raise Damaged(name, 0, "shorter than the head of an entry")
    magic, crc, kind, last, version, term, home, owner, base, offset, size, chain = (
        HEAD.unpack_from(entry)
    )
    if magic != MAGIC or not (is_mine or zlib.crc32(memoryview(entry)[CRC_END:]) == crc):
        raise Damaged(name, 0, "no entry of a home, or its checksum does not match")
    if version > FORMAT or kind not in {*EntryKind}:
        raise NewerFormat(name, 0, f"an entry of format {version} and kind {kind}")
    data = entry[HEAD_BYTES:]
    if size != len(data):
        raise Damaged(name, 0, f"its bytes are {len(data)}, and it says {size}")
    what = EntryKind(kind), bool(last), term, home, owner, base, offset
    return SlotEntry(*what, data, chain, entry[CRC_END:CHAIN_AT])
