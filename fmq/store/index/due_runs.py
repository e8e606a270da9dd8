"""Timers sorted by their due time: runs of entries, in files or in memory.

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
         4     4  crc       CRC-32 of the entries, and then of the header after this field
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

from fmq.machine.disk import Directory, File

ENTRY = Struct(">QQQIII")
ENTRY_BYTES = ENTRY.size
HEAD = Struct("<4sI16sQQ")
MAGIC = b"fmqD"
CRC_END = 8
# Due time and number. They are equal in all entries of a timer.
KEY = slice(0, 16)
NUMBER = slice(8, 16)
POSITION = slice(16, 24)
BLOCK_ENTRIES = 512
SUFFIX = ".due"


class BadRun(Exception):
    """Raised for a file that is not a sound run of this store."""


class Due(NamedTuple):
    """One timer: when its messages are due, and the position of their record until then."""

    due_us: int
    number: int
    position: int
    size: int
    messages: int
    raw_bytes: int

    def packed(self) -> bytes:
        """Return the bytes of the entry for this timer."""
        return ENTRY.pack(*self)


def due_of(entry: bytes) -> Due:
    """Return the timer that `entry` holds."""
    return Due(*ENTRY.unpack(entry))


def number_in(entry: bytes) -> int:
    """Return the timer's number in `entry`."""
    return int.from_bytes(entry[NUMBER], "big")


def due_in(entry: bytes) -> int:
    """Return the due time in `entry`."""
    return int.from_bytes(entry[:8], "big")


def position_in(entry: bytes) -> int:
    """Return the position in `entry`: of the newest record of its timer."""
    return int.from_bytes(entry[POSITION], "big")


class DueRun:
    """Sorted entries of timers. Entries before number `at` are taken; `head` is entry
    number `at`.
    """

    __slots__ = ("_block", "_block_first", "_data", "_file", "at", "count", "crc", "head", "lowest",
                 "name")  # fmt: skip

    def __init__(self, count: int, lowest: int, at: int = 0) -> None:
        self.count = count
        self.lowest = lowest  # no entry of the run has a lower position
        self.at = at
        self.name = ""  # "" while the run has no file
        self.crc = 0  # the checksum of the run's file
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
        """Count the next `count` entries as taken."""
        self.at += count
        if self.at >= self.count:
            self.head = None
            return
        place = self.at - self._block_first
        if not 0 <= place < len(self._block) // ENTRY_BYTES:
            self._block, self._block_first, place = self.read(self.at), self.at, 0
        self.head = self._block[place * ENTRY_BYTES : (place + 1) * ENTRY_BYTES]

    def read(self, first: int, count: int = BLOCK_ENTRIES) -> bytes:
        """Return up to `count` entries from number `first` on, joined."""
        start, size = first * ENTRY_BYTES, min(count, self.count - first) * ENTRY_BYTES
        data = self._data  # read the attribute once: another thread may save the run meanwhile
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
        """Return the first entry of the timer `key`; None if the file has none, or it was taken."""
        low, high = self.at, self.count
        while low < high:
            middle = (low + high) // 2
            if self.read(middle, 1)[KEY] < key:
                low = middle + 1
            else:
                high = middle
        found = self.read(low, 1) if low < self.count else b""
        return found if found[KEY] == key else None

    def place_after(self, key: bytes) -> int:
        """Return the number of the first entry after all entries of the timer `key`."""
        low, high = self.at, self.count
        while low < high:
            middle = (low + high) // 2
            if self.read(middle, 1)[KEY] <= key:
                low = middle + 1
            else:
                high = middle
        return low

    def skip_to(self, key: bytes) -> None:
        """Count all entries up to and including the timer `key` as taken."""
        self.take(self.place_after(key) - self.at)

    @property
    def is_saved(self) -> bool:
        """Return whether the run is in a file."""
        return self._file is not None

    def bytes_in_memory(self) -> int:
        """Return how many bytes the entries take in memory."""
        return len(self._data or b"")

    def name_file(self, name: str, store: bytes) -> None:
        """Name the file that `save` will write."""
        assert self._data is not None
        self.name = name
        self.crc = crc_of(store, self.count, self.lowest, zlib.crc32(self._data))

    def save(self, directory: Directory, store: bytes) -> None:
        """Write the file. Its name is durable after the next sync of the directory."""
        assert self._data is not None
        made = RunFile(directory, self.name, store)
        made.add(self._data)
        made.end(self.count, self.lowest)
        self._use(directory.open(self.name))

    def _use(self, file: File) -> None:
        self._file = file
        self._data = None  # set this last: another thread may be reading

    @classmethod
    def open(cls, directory: Directory, name: str, store: bytes, at: int, crc: int) -> DueRun:
        """Return the run in the file `name`. Raises BadRun or OSError, also if its checksum is not
        `crc`.
        """
        file = directory.open(name)
        try:
            run = cls._checked(file, store, at, crc)
            run.name, run.crc = name, crc
            run._use(file)
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
        found = 0
        start, end = HEAD.size, HEAD.size + count * ENTRY_BYTES
        while start < end:
            data = file.read(start, min(1 << 20, end - start))
            if not data:
                raise BadRun("it is cut short")
            found = zlib.crc32(data, found)
            start += len(data)
        if crc_of(store, count, lowest, found) != crc:
            raise BadRun("its checksum does not match")
        return cls(count, lowest, at)

    def before(self, number: int) -> bytes:
        """Return the entry before entry `number`."""
        return self.read(number - 1, 1)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def crc_of(store: bytes, count: int, lowest: int, crc: int) -> int:
    """Return the checksum of a run's file, from the checksum `crc` of its entries."""
    return zlib.crc32(HEAD.pack(MAGIC, 0, store, count, lowest)[CRC_END:], crc)


class RunFile:
    """Writes the file of a run, from front to back."""

    def __init__(self, directory: Directory, name: str, store: bytes) -> None:
        self._store = store
        if name in directory.names():
            # an engine has left the file that ended before a checkpoint named it
            directory.remove(name)
        self._file = directory.create(name)
        self._at = HEAD.size
        self._crc = 0

    def add(self, entries: bytes) -> None:
        """Append entries."""
        self._file.write(self._at, (entries,), sync=False)
        self._crc, self._at = zlib.crc32(entries, self._crc), self._at + len(entries)

    def end(self, count: int, lowest: int) -> int:
        """Write the header, and sync. Return the checksum."""
        crc = crc_of(self._store, count, lowest, self._crc)
        head = HEAD.pack(MAGIC, crc, self._store, count, lowest)
        self._file.write(0, (head,), sync=False)
        self._file.sync()
        self._file.close()
        return crc


def merged(sources: Iterable[Iterable[bytes]], without: Collection[bytes]) -> Iterator[bytes]:
    """Merge sorted sources. Yield the newest entry of each timer, in order.

    Timers whose numbers, as 8 bytes, are in `without` are left out.
    """
    last: bytes | None = None
    for entry in merge(*sources):
        if last is not None and last[KEY] != entry[KEY] and last[NUMBER] not in without:
            yield last
        last = entry
    if last is not None and last[NUMBER] not in without:
        yield last
