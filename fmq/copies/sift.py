"""Tells in one segment of a damaged journal what is sound from what is not.

An append is sound if the heads of all its records are. Between two sound appends there may be a
gap: bytes that are no append, with the sound heads among them. Messages whose bodies are damaged
and whose head is sound belong to their append; `damaged` has their positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from fmq.copies.segments import OnlyRead
from fmq.errors import NewerFormat
from fmq.machine.disk import PAGE_BYTES, File
from fmq.store.bytes.decoding import decode
from fmq.store.bytes.kinds import Record
from fmq.store.bytes.record import FIRST, BadRecord
from fmq.store.journal.scan import (
    Finding,
    Scan,
    ScanEnd,
    durable_beyond,
    end_of,
    last_byte,
    sound_heads,
)
from fmq.store.journal.segment import HEADER_BYTES, segment_name


class Breach(NamedTuple):
    """Bytes of a segment that are no sound append."""

    start: int
    end: int
    reason: str
    heads: tuple[Record, ...] = ()
    """The records in it whose heads are sound. Their append is not whole."""
    sound: frozenset[int] = frozenset()
    """The positions of those whose bodies are sound, too."""


class Sift:
    """The sound appends of one segment, and the gaps between them, in their order.

    `end` is where the last of them ends, and `cut` how many bytes after it nothing proves durable:
    a recovery would cut them.
    """

    def __init__(self, file: File, base: int, limit: int, seed: int, proven: int | None) -> None:
        """Read up to `limit`. All of it had been durable, or, in the last segment, what lies below
        `proven` or below the durable_to of a later record.
        """
        self._file, self._base, self._limit, self._seed = file, base, limit, seed
        self._is_last = proven is not None
        start = base + HEADER_BYTES
        self._proven = limit + 1
        if proven is not None:
            self._proven = max(proven, durable_beyond(file, base, limit, start, seed))
        self.damaged: dict[int, str] = {}
        self.turned: dict[int, int] = {}  # as `Scan.turned`
        self.end = start
        self.cut = 0

    def __iter__(self) -> Iterator[list[Record] | Breach]:
        while True:
            scan = Scan(
                self._file, self._base, self._limit, self.end, self._seed, proven=self._proven
            )
            for append in scan:
                self.damaged.update(scan.damaged)
                self.turned.update(scan.turned)
                self.end = end_of(append)
                yield append
            ending = scan.ending
            assert ending is not None
            if self._is_over(ending):
                return
            gap = self._gap(ending)
            self.end = gap.end
            yield gap
            if gap.end == self._limit:
                return

    def _is_over(self, ending: ScanEnd) -> bool:
        """Return whether the segment ends where the sound appends do."""
        if ending.finding is Finding.NEWER:
            raise NewerFormat(segment_name(self._base), ending.position, ending.reason)
        start = ending.append_start
        if ending.finding is Finding.END and start == ending.position:
            return True
        if not self._is_last or start < self._proven:
            return False
        if ending.finding is not Finding.ZEROS or start != ending.position:
            at = start - self._base
            self.cut = last_byte(self._file, at, self._limit - self._base) - at
        return True

    def _gap(self, ending: ScanEnd) -> Breach:
        start = ending.append_start
        heads: list[Record] = []
        sound: set[int] = set()
        found = sound_heads(self._file, self._base, self._limit, start, self._seed)
        for _, _, record in found:
            if record is None:
                raise NewerFormat(segment_name(self._base), start, "a record behind damage")
            at = record.position
            if at > start and record.flags & FIRST:
                return Breach(start, at, ending.reason, tuple(heads), frozenset(sound))
            heads.append(record)
            with suppress(BadRecord):
                decode(self._file.read(at - self._base, record.size), 0, at, self._seed)
                sound.add(at)
        return Breach(
            start,
            self._limit,
            ending.reason or "the append is not whole",
            tuple(heads),
            frozenset(sound),
        )


class TornFile(OnlyRead):
    """A file in which unreadable bytes are read as zeros, so that the rest can be read."""

    def __init__(self, file: File) -> None:
        self._file = file

    def read(self, offset: int, size: int) -> bytes:
        try:
            return self._file.read(offset, size)
        except OSError:
            found = []
            for at in range(offset, offset + size, PAGE_BYTES):
                part = min(PAGE_BYTES, offset + size - at)
                try:
                    found.append(self._file.read(at, part))
                except OSError:
                    found.append(bytes(part))
            return b"".join(found)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()

    def identity(self) -> tuple[int, int]:
        return self._file.identity()

    def pin(self, *, exclusive: bool) -> bool:
        return self._file.pin(exclusive=exclusive)
