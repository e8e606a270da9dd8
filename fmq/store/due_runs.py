"""Entries of messages that wait for their time, sorted by it: runs of entries in files or memory.

An entry has 36 bytes, all big-endian, so that entries sort by their bytes:

    offset  size  field
         0     8  due       microseconds since 1970
         8     8  number    of the timer: the position of its first record
        16     8  position  of its newest record, which has the messages
        24     4  size      of that record
        28     4  messages
        32     4  bytes     of their bodies

A file is a header and its entries. It is derived from the journal: one that is missing or not sound
is built again.

    offset  size  field
         0     4  magic     b"fmqD"
         4     4  crc       CRC-32 of everything after this field
         8    16  store     UUID
        24     8  entries
        32     8  lowest    position of an entry
        40     *  the entries
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from fmq.disk import Directory, File

ENTRY = Struct(">QQQIII")
ENTRY_BYTES = ENTRY.size
HEAD = Struct("<4sI16sQQ")
MAGIC = b"fmqD"
CRC_END = 8
KEY = slice(0, 16)  # due and number: the same in each copy of an entry
NUMBER = slice(8, 16)
POSITION = slice(16, 24)
BLOCK_ENTRIES = 512
SUFFIX = ".due"


class BadRun(Exception):
    """A file that is not a sound run of this store."""


class Due(NamedTuple):
    """One timer: when its messages are due, and where they lie until then."""

    due_us: int
    number: int
    position: int
    size: int
    messages: int
    bytes: int

    def packed(self) -> bytes:
        """Return it as an entry."""
        return ENTRY.pack(*self)


def due_of(entry: bytes) -> Due:
    """Return what an entry says."""
    return Due(*ENTRY.unpack(entry))


def number_in(entry: bytes) -> int:
    """Return the number of the timer of an entry."""
    return int.from_bytes(entry[NUMBER], "big")


def due_in(entry: bytes) -> int:
    """Return when the timer of an entry is due."""
    return int.from_bytes(entry[:8], "big")


def position_in(entry: bytes) -> int:
    """Return where the newest record of the timer of an entry lies."""
    return int.from_bytes(entry[POSITION], "big")


class DueRun:
    """Sorted entries. Those before the number `at` were taken; `head` is the entry there."""

    __slots__ = ("_block", "_block_first", "_data", "_file", "at", "count", "crc", "head", "lowest",
                 "name")  # fmt: skip

    def __init__(self, count: int, lowest: int, at: int = 0) -> None:
        self.count = count
        self.lowest = lowest  # no entry has a lower position
        self.at = at
        self.name = ""  # of its file; "": it has none yet
        self.crc = 0  # of its file
        self.head: bytes | None = None
        self._data: bytes | None = None
        self._file: File | None = None
        self._block = b""
        self._block_first = 0

    @classmethod
    def of(cls, entries: Sequence[bytes]) -> DueRun:
        """Return a run in memory of sorted entries."""
        run = cls(len(entries), min(map(position_in, entries), default=0))
        run._data = b"".join(entries)
        run.take(0)
        return run

    def take(self, count: int) -> None:
        """Note that `count` more entries were taken."""
        self.at += count
        if self.at >= self.count:
            self.head = None
            return
        place = self.at - self._block_first
        if not 0 <= place < len(self._block) // ENTRY_BYTES:
            self._block, self._block_first, place = self.read(self.at), self.at, 0
        self.head = self._block[place * ENTRY_BYTES : (place + 1) * ENTRY_BYTES]

    def read(self, first: int, count: int = BLOCK_ENTRIES) -> bytes:
        """Return up to `count` entries from number `first` on, in one piece."""
        start, size = first * ENTRY_BYTES, min(count, self.count - first) * ENTRY_BYTES
        data = self._data  # another thread may save it meanwhile
        if data is not None:
            return data[start : start + size]
        assert self._file is not None
        return self._file.read(HEAD.size + start, size)

    def entries(self, first: int) -> Iterator[bytes]:
        """Yield the entries from number `first` on."""
        for block_first in range(first, self.count, BLOCK_ENTRIES):
            block = self.read(block_first)
            for at in range(0, len(block), ENTRY_BYTES):
                yield block[at : at + ENTRY_BYTES]

    def find(self, key: bytes) -> bytes | None:
        """Return the entry of the timer `key` if it was not taken; the first if there are copies."""
        low, high = self.at, self.count
        while low < high:
            middle = (low + high) // 2
            if self.read(middle, 1)[KEY] < key:
                low = middle + 1
            else:
                high = middle
        found = self.read(low, 1) if low < self.count else b""
        return found if found[KEY] == key else None

    def skip_to(self, key: bytes) -> None:
        """Note that all entries up to the timer `key` were taken."""
        low, high = self.at, self.count
        while low < high:
            middle = (low + high) // 2
            if self.read(middle, 1)[KEY] <= key:
                low = middle + 1
            else:
                high = middle
        self.take(low - self.at)

    @property
    def is_saved(self) -> bool:
        """Whether it is in a file."""
        return self._file is not None

    def bytes_in_memory(self) -> int:
        """Return how many bytes of entries are in memory."""
        return len(self._data or b"")

    def save(self, directory: Directory, name: str, store: bytes) -> None:
        """Write it to the file `name`, durably but for the name."""
        assert self._data is not None
        crc = write_run(directory, name, store, (self._data,), self.count, self.lowest)
        self._use(directory.open(name), name, crc)

    def _use(self, file: File, name: str, crc: int) -> None:
        self._file, self.name, self.crc = file, name, crc
        self._data = None  # after the file is there, for a thread that reads

    @classmethod
    def open(cls, directory: Directory, name: str, store: bytes, at: int, crc: int) -> DueRun:
        """Return the run in the file `name`; raise BadRun or OSError unless it has this `crc`."""
        file = directory.open(name)
        try:
            run = cls._checked(file, store, at, crc)
            run._use(file, name, crc)
            run.take(0)
        except BaseException:
            file.close()
            raise
        return run

    @classmethod
    def _checked(cls, file: File, store: bytes, at: int, crc: int) -> DueRun:
        head = file.read(0, HEAD.size)
        try:
            magic, says, of, count, lowest = HEAD.unpack(head)
        except StructError:
            raise BadRun("the header is cut short") from None
        if magic != MAGIC or of != store or says != crc or not 0 <= at <= count:
            raise BadRun("it is not the file that the checkpoint names")
        found = zlib.crc32(head[CRC_END:])
        start, end = HEAD.size, HEAD.size + count * ENTRY_BYTES
        while start < end:
            data = file.read(start, min(1 << 20, end - start))
            if not data:
                raise BadRun("it is cut short")
            found = zlib.crc32(data, found)
            start += len(data)
        if found != crc:
            raise BadRun("its checksum does not match")
        return cls(count, lowest, at)

    def close(self) -> None:
        """Close its file."""
        if self._file is not None:
            self._file.close()


def write_run(
    directory: Directory, name: str, store: bytes, parts: Iterable[bytes], count: int, lowest: int
) -> int:
    """Write a run of `count` entries to the new file `name`; return its checksum.

    Its bytes are durable on return, its name with the next sync of the directory.
    """
    head = HEAD.pack(MAGIC, 0, store, count, lowest)
    crc, at = zlib.crc32(head[CRC_END:]), HEAD.size
    if name in directory.names():
        directory.remove(name)  # left by an engine that ended before a checkpoint named it
    file = directory.create(name)
    try:
        for part in parts:
            file.write(at, (part,), sync=False)
            crc, at = zlib.crc32(part, crc), at + len(part)
        file.write(0, (HEAD.pack(MAGIC, crc, store, count, lowest),), sync=False)
        file.sync()
    finally:
        file.close()
    return crc


def merged(sources: Iterable[Iterable[bytes]], without: Collection[bytes]) -> Iterator[bytes]:
    """Yield the entries of sorted sources, sorted: of each timer the newest copy.

    Timers whose numbers, as 8 bytes, are in `without` are left out.
    """
    last: bytes | None = None
    for entry in merge(*sources):
        if last is not None and last[KEY] != entry[KEY] and last[NUMBER] not in without:
            yield last
        last = entry
    if last is not None and last[NUMBER] not in without:
        yield last
