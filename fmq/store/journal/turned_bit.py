"""Finds the one bit of a damaged head that has turned.

A turned bit changes a checksum by a number that depends on nothing but the bit's distance from the
end. For heads up to TURNED_BYTES_MAX these numbers all differ, so a table says where the bit is.
Bits that the checksum does not cover, and bits that say how much it covers, are tried one by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from fmq.store.bytes.decoding import decode
from fmq.store.bytes.record import HEAD_BYTES_MIN, PREFIX_BYTES, BadRecord, Misplaced, Newer

TURNED_BYTES_MAX = 512
MAGIC_PLACES, CHECKSUM_PLACES, SIZE_PLACES = range(4), range(4, 8), range(12, 16)


class TurnedBit(NamedTuple):
    """A byte of a head of which one bit has turned."""

    place: int
    byte: int
    """What it was."""


def turned_bit(data: bytes, position: int, seed: int) -> TurnedBit | None:
    """Return which bit of the head at the start of `data` has turned; None if no single bit
    explains the damage.

    A head of this size has four bits that differ from each other sound head, so at most one bit
    can be right. That several turned bits look like one happens for one damaged head in a million.
    """
    head = bytearray(data[:TURNED_BYTES_MAX])
    found: TurnedBit | None = None
    if len(head) < HEAD_BYTES_MIN:
        return None
    for place, bit in _candidates(head, seed):
        head[place] ^= 1 << bit
        if _has_size(head) and place < _size(head) and _difference(head, seed) == 0:
            with suppress(BadRecord, Misplaced, Newer):
                decode(bytes(head), 0, position, seed, bodies=False)
                if found is not None:
                    return None
                found = TurnedBit(place, head[place])
        head[place] ^= 1 << bit
    return found


def _size(head: bytearray) -> int:
    return int.from_bytes(head[12:16], "little")


def _has_size(head: bytearray) -> bool:
    """Return whether the size that the head states is possible."""
    return HEAD_BYTES_MIN <= _size(head) <= len(head)


def _difference(head: bytearray, seed: int) -> int:
    """Return in which bits the checksum of the head differs from the one that it states."""
    crc = zlib.crc32(memoryview(head)[PREFIX_BYTES : _size(head)], seed)
    return crc ^ int.from_bytes(head[4:8], "little")


def _candidates(head: bytearray, seed: int) -> Iterator[tuple[int, int]]:
    """Yield each place and bit that may have turned."""
    tried = [*SIZE_PLACES]
    if _has_size(head):
        difference = _difference(head, seed)
        if difference == 0:
            tried += MAGIC_PLACES
        elif difference.bit_count() == 1:
            place, bit = divmod(difference.bit_length() - 1, 8)
            yield CHECKSUM_PLACES[place], bit
        distance, bit = _changes().get(difference, (TURNED_BYTES_MAX, 0))
        place = _size(head) - 1 - distance
        if place >= PREFIX_BYTES and place not in SIZE_PLACES:
            yield place, bit
    for place in tried:
        for bit in range(8):
            yield place, bit


@cache
def _changes() -> dict[int, tuple[int, int]]:
    """Return a table: the change of a checksum -> the bit that causes it, as the distance of its
    byte from the end and its number in the byte.
    """
    return {
        zlib.crc32(bytes((1 << bit, *bytes(distance)))) ^ zlib.crc32(bytes(1 + distance)): (
            distance,
            bit,
        )
        for distance in range(TURNED_BYTES_MAX)
        for bit in range(8)
    }
