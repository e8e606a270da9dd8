"""Reads a segment from front to back, append by append, until something stops it.

A Finding says what stopped the scan. The scan draws no conclusion: recovery/tail.py decides whether
bytes that are no record are torn or damaged. Nothing is written here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from enum import Enum
from struct import Struct
from typing import NamedTuple

from fmq.machine.disk import File
from fmq.store.bytes.decoding import decode, durable_to_of
from fmq.store.bytes.kinds import Record, Run
from fmq.store.bytes.record import (
    ALIGNMENT,
    COMMON,
    FIRST,
    HEAD_BYTES_MIN,
    LAST,
    NAME,
    PREFIX_BYTES,
    BadRecord,
    BodiesDamaged,
    Misplaced,
    Newer,
    aligned,
)
from fmq.store.journal.turned_bit import turned_bit

BLOCK_BYTES = 1 << 20
# How many bytes a search may hash for each byte that it covers.
HASHED_TIMES = 4


class Finding(Enum):
    """What a scan finds where the sound records end."""

    END = "the end that was expected"
    SHORT = "the file ends here"
    ZEROS = "zeros to the end of the segment"
    BAD = "bytes that are no sound record"
    MISPLACED = "a sound record that belongs elsewhere"
    NEWER = "a record from the future"


class ScanEnd(NamedTuple):
    """Where the sound, complete appends end, and why."""

    finding: Finding
    position: int
    """Where the bytes that stopped the scan begin."""
    append_start: int
    """Where the last, unfinished append begins; `position` if there is none."""
    reason: str


class Scan:
    """The appends of one segment from `position` on: iterates over lists of records.

    After the last one, `ending` says what stopped it. `durable_to` is the largest that any record
    stated. `chain` is the checksum of the segment up to the last whole append, if it was `chain` at
    the position `chain_at` and the scan has passed that.

    With `proven`, messages whose bodies are damaged are passed over where they had been durable:
    below `proven`, or below the durable_to of a later record. Their head says what they are, and
    `damaged` where they lie and what is wrong with each.
    """

    def __init__(
        self,
        file: File,
        base: int,
        limit: int,
        position: int,
        seed: int,
        chain: int = 0,
        chain_at: int = -1,
        *,
        rest_was_zeros: bool = False,
        proven: int | None = None,
    ) -> None:
        """Stop at `limit`: the segment's end if that is known, else the position after its file.

        With `rest_was_zeros`, a block of zeros after the last record counts as zeros to the end. It
        is for a caller that has seen that once and now looks for new appends.
        """
        self._file = file
        self._base = base
        self._limit = limit
        self._position = position
        self._seed = seed
        self._data = b""
        self._data_start = position
        self._head_crc = b""
        self._chain = chain
        self._chain_at = chain_at
        self._rest_was_zeros = rest_was_zeros
        self._proven = proven
        self.damaged: dict[int, str] = {}
        # Where a bit of a head has turned: the position of its byte, and what the byte was.
        self.turned: dict[int, int] = {}
        self.chain: int | None = None
        self.durable_to = 0
        self.ending: ScanEnd | None = None

    def __iter__(self) -> Iterator[list[Record]]:
        append: list[Record] = []
        chain: int | None = None
        while True:
            if self._position == self._chain_at:
                self.chain = chain = self._chain
            start = append[0].position if append else self._position
            try:
                record = self._next()
            except _Stop as stop:
                self.ending = ScanEnd(stop.finding, self._position, start, str(stop))
                return
            if bool(record.flags & FIRST) == bool(append):
                # No fmq writes such records, so no crash can have left them.
                reason = "an append begins inside another" if append else "an append lacks its head"
                self.ending = ScanEnd(Finding.MISPLACED, record.position, start, reason)
                return
            append.append(record)
            self._position = record.position + aligned(record.size)
            if chain is not None:
                chain = zlib.crc32(self._head_crc, chain)
            if record.flags & LAST:
                self.chain = chain
                yield append
                append = []

    def _next(self) -> Record:
        position = self._position
        if position == self._limit:
            raise _Stop(Finding.END, "")
        while True:
            try:
                return self._record(position)
            except BodiesDamaged as error:
                try:
                    self._stop_unless_changed(position, str(error))
                except _Stop as stop:
                    if stop.finding is not Finding.BAD or not self._had_been_durable(position):
                        raise
                    self.damaged[position] = str(error)
                    return self._record(position, bodies=False)
            except BadRecord as error:
                try:
                    self._stop_unless_changed(position, str(error))
                except _Stop as stop:
                    found = self._turned_back(position) if stop.finding is Finding.BAD else None
                    if found is None:
                        raise
                    return found

    def _had_been_durable(self, position: int) -> bool:
        """Return whether the messages at `position` may be passed over: they had been durable."""
        if self._proven is None or type(self._record(position, bodies=False)) is not Run:
            return False
        return self._is_durable(position)

    def _is_durable(self, position: int) -> bool:
        """Return whether what lies at `position` had been durable."""
        if self._proven is None:
            return False
        if self._proven <= position:
            beyond = durable_beyond(self._file, self._base, self._limit, position, self._seed)
            self._proven = max(self._proven, beyond)
        return self._proven > position

    def _turned_back(self, position: int) -> Record | None:
        """Return the record at `position` as it was before one bit of its head turned, and note
        that in `turned`. Return None if not exactly one bit has turned, or if the bytes had not
        been durable.
        """
        if not self._is_durable(position):
            return None
        at = self._need(position, HEAD_BYTES_MIN)
        found = turned_bit(self._data[at:], position, self._seed)
        if found is None:
            return None
        head = bytearray(self._data[at : at + HEAD_BYTES_MIN])
        if found.place < HEAD_BYTES_MIN:
            head[found.place] = found.byte
        (size,) = SIZE.unpack_from(head, PREFIX_BYTES)
        at = self._need(position, min(size, self._limit - position))
        data = bytearray(self._data)
        data[at + found.place] = found.byte
        self._data = bytes(data)
        try:
            record = self._record(position)
        except BodiesDamaged as error:
            record = self._record(position, bodies=False)
            if type(record) is not Run:
                return None
            self.damaged[position] = str(error)
        except (BadRecord, _Stop):
            return None
        self.turned[position + found.place] = found.byte
        return record

    def _record(self, position: int, *, bodies: bool = True) -> Record:
        """Return the record at `position`. Raises BadRecord, or another reason to stop. The
        bodies are verified, too, unless `bodies` is False.
        """
        if position + HEAD_BYTES_MIN > self._limit:
            raise BadRecord("too little room for a record")
        at = self._need(position, HEAD_BYTES_MIN)
        if at + PREFIX_BYTES + COMMON.size <= len(self._data):
            # The size is not verified yet, so read at most up to the segment's end.
            (size,) = SIZE.unpack_from(self._data, at + PREFIX_BYTES)
            if size <= self._limit - position:
                at = self._need(position, size)
        try:
            record = decode(self._data, at, position, self._seed, bodies=bodies)
        except Misplaced as error:
            raise _Stop(Finding.MISPLACED, str(error)) from None
        except Newer as error:
            raise _Stop(Finding.NEWER, str(error)) from None
        if position + aligned(record.size) > self._limit:
            raise _Stop(Finding.MISPLACED, "a record reaches over the end of its segment")
        self.durable_to = max(self.durable_to, durable_to_of(self._data, at))
        self._head_crc = self._data[at + 4 : at + 8]
        return record

    def _need(self, position: int, size: int) -> int:
        """Read up to `size` bytes from `position` on. Return their index in memory."""
        if position + size > self._data_start + len(self._data):
            wanted = min(max(size, BLOCK_BYTES), self._limit - position)
            self._data = self._file.read(position - self._base, wanted)
            self._data_start = position
        return position - self._data_start

    def _stop_unless_changed(self, position: int, reason: str) -> None:
        """Stop with the finding at `position`. If the bytes have changed, an engine may be writing:
        go on.
        """
        if self._file.size() < self._limit - self._base:
            raise _Stop(Finding.SHORT, "the file is shorter than its segment")
        # Compare with the bytes in memory, which were all read at one moment. Mixed with newer
        # bytes, an append that was written meanwhile would look like damage.
        known = self._data[position - self._data_start :]
        offset, end = position - self._base, self._limit - self._base
        if self._rest_was_zeros:
            end = min(end, offset + BLOCK_BYTES)
        if known == bytes(len(known)) and zeros_from(self._file, offset + len(known), end):
            raise _Stop(Finding.ZEROS, "nothing but zeros")
        self._data, self._data_start = self._file.read(offset, max(len(known), 1)), position
        if self._data == known:
            raise _Stop(Finding.BAD, reason)


class _Stop(Exception):
    def __init__(self, finding: Finding, reason: str) -> None:
        super().__init__(reason)
        self.finding = finding


SIZE = Struct("<I")
ZEROS = bytes(BLOCK_BYTES)


def blocks(file: File, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes from `offset` up to `end`, or to the end of the file, in blocks with their
    offsets. A segment may be larger than the free memory.
    """
    for start in range(offset, end, BLOCK_BYTES):
        yield start, file.read(start, min(BLOCK_BYTES, end - start))


def zeros_from(file: File, offset: int, end: int) -> bool:
    """Return whether there are only zeros from `offset` up to `end`, or to the end of the file."""
    while offset < end:
        data = file.read(offset, min(BLOCK_BYTES, end - offset))
        if not data:
            return True
        if data != ZEROS[: len(data)]:
            return False
        offset += len(data)
    return True


def last_byte(file: File, offset: int, end: int) -> int:
    """Return the end of the last byte between `offset` and `end` that is not zero; `offset` if all
    are.
    """
    last = offset
    for start, data in blocks(file, offset, end):
        if data := data.rstrip(b"\0"):
            last = start + len(data)
    return last


def end_of(append: Sequence[Record]) -> int:
    """Return the position after `append` and its padding."""
    return append[-1].position + aligned(append[-1].size)


def durable_beyond(file: File, base: int, limit: int, position: int, seed: int) -> int:
    """Return the largest durable_to that a sound record after `position` states; 0 if there is
    none.
    """
    durable_to = 0
    for data, at, _ in sound_heads(file, base, limit, position, seed):
        durable_to = max(durable_to, durable_to_of(data, at))
    return durable_to


def sound_heads(
    file: File, base: int, limit: int, position: int, seed: int
) -> Iterator[tuple[bytes, int, Record | None]]:
    """Yield each record after `position` whose head is sound: its bytes, its index in them, and the
    record without bodies. The record is None if it is of a later version.

    A record begins with a magic at a multiple of 8, so records can be searched for after damage. A
    body may contain bytes that look like heads. So the bytes that are hashed are limited to a few
    times those that are searched, and memory is taken only for sound records. Records of a later
    version count, too.
    """
    left = HASHED_TIMES * (limit - position)
    for data, at, where in _magics(file, base, limit, position):
        _, head_size, says, *_ = COMMON.unpack_from(data, at + PREFIX_BYTES)
        if says != where or not HEAD_BYTES_MIN <= head_size <= min(limit - where, left):
            continue
        left -= head_size
        if at + head_size > len(data):
            if _head_crc(file, where - base, head_size, seed) != data[at + 4 : at + 8]:
                continue
            data, at = file.read(where - base, head_size), 0
        try:
            record = decode(data, at, where, seed, bodies=False)
        except (BadRecord, Misplaced):
            continue
        except Newer:
            # The head is sound and states its position, so its size is right, too.
            record = None
        yield data, at, record


def _magics(file: File, base: int, limit: int, position: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield where a record may begin, from `position` on: bytes that hold the common part of its
    head, its index in them, its position.
    """
    overlap = HEAD_BYTES_MIN - 1
    for start in range(position, limit, BLOCK_BYTES):
        data = file.read(start - base, min(BLOCK_BYTES + overlap, limit - start))
        last = len(data) - overlap
        at = data.find(NAME)
        while 0 <= at < last:
            if (start + at) % ALIGNMENT == 0:
                yield data, at, start + at
            at = data.find(NAME, at + 1)


def _head_crc(file: File, offset: int, size: int, seed: int) -> bytes:
    """Return the checksum of the `size` bytes of a head at `offset`."""
    crc = seed
    for _, data in blocks(file, offset + PREFIX_BYTES, offset + size):
        crc = zlib.crc32(data, crc)
    return crc.to_bytes(4, "little")
