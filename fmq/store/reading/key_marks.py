"""Key marks: in which runs of a sealed segment a key may be. They are in a file beside the index.

    offset  size  field
         0     4  magic  b"fmqK"
         4     4  crc    CRC-32 of everything after this field
         8     4  size   of the whole file
        12    16  store
        28     8  base   of the segment
        36     4  chain  the checksum of the segment's records
        40     4  lanes
         .     *  lanes, each: u16 queue, u8 size, the topic, u32 marks, then the marks

A mark is the hash of a key and the number of an entry of its lane: first all hashes of the lane,
sorted, then all numbers, each a u32. Several keys may have one hash: the record decides.

The file is derived, like an index. It is not synced: one that is missing or not sound is made again
from its segment.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from contextlib import suppress
from struct import Struct
from struct import error as StructError
from zlib import crc32

from fmq.errors import Damaged, NewerFormat, Unreadable
from fmq.machine.disk import Directory
from fmq.store.index.catalog import Catalog
from fmq.store.index.index import QueueKey, SegmentIndex
from fmq.store.journal.section import OwnedLock
from fmq.store.journal.segment import segment_name
from fmq.store.reading.reader import Reader, entries_of

SUFFIX = ".keys"
MAGIC = b"fmqK"
HEAD = Struct("<4sII16sQII")
LANE = Struct("<HB")
MARKS = Struct("<I")
CRC_END = 8
LOADED_MAX = 8  # how many segments have their marks in memory


class BadMarks(Exception):
    """Raised for bytes that are not sound marks of this segment. The marks are then made again."""


class LaneMarks:
    """The marks of one queue in one segment."""

    __slots__ = ("hashes", "numbers")

    def __init__(self, hashes: array[int], numbers: array[int]) -> None:
        self.hashes = hashes
        self.numbers = numbers

    def find(self, hash: int) -> list[int]:
        """Return, in order, the numbers of the entries that may have a key with this hash."""
        first = bisect_left(self.hashes, hash)
        return self.numbers[first : bisect_left(self.hashes, hash + 1, first)].tolist()


SegmentMarks = dict[QueueKey, LaneMarks]


def hash_of(key: str) -> int:
    """Return the hash of `key`. Hashes are on disk: never change the function."""
    return crc32(key.encode())


class KeyMarks:
    """The marks of the sealed segments of one directory. Any thread may call it."""

    def __init__(
        self, directory: Directory, store: bytes, catalog: Catalog, reader: Reader, *, writes: bool
    ) -> None:
        """Files are written only with `writes`, which an engine passes."""
        self._directory = directory
        self._store = store
        self._catalog = catalog
        self._reader = reader
        self._writes = writes
        self._lock = OwnedLock()
        self._loaded: OrderedDict[int, SegmentMarks] = OrderedDict()
        # True once a key was searched for. None: not known yet.
        self._wanted: bool | None = None

    def of(self, base: int, chain: int) -> SegmentMarks:
        """Return the marks of the sealed segment at `base`, whose records have the checksum
        `chain`.

        Raises Damaged, NewerFormat or Unreadable if they must be made and cannot be, or
        FileNotFoundError if the segment is gone.
        """
        with self._lock:
            self._wanted = True
            found = self._loaded.get(base)
            if found is None:
                try:
                    found = self._read(base, chain)
                except (OSError, BadMarks):
                    found = self._make(base, chain)
                self._loaded[base] = found
                while len(self._loaded) > LOADED_MAX:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end(base)
            return found

    def sealed(self, base: int, chain: int) -> None:
        """Make the marks of a segment that was just sealed, if keys are searched for in this
        directory. Raises nothing: missing marks are made when they are needed.
        """
        if self._wanted is None:
            self._wanted = any(name.endswith(SUFFIX) for name in self._directory.names())
        if self._wanted:
            with suppress(Damaged, NewerFormat, OSError, Unreadable):
                self.of(base, chain)

    def forget(self, base: int) -> None:
        """Forget the marks of a segment in which messages were erased."""
        with self._lock:
            self._loaded.pop(base, None)
            with suppress(OSError):
                self._directory.remove(segment_name(base, SUFFIX))

    def _read(self, base: int, chain: int) -> SegmentMarks:
        file = self._directory.open(segment_name(base, SUFFIX))
        try:
            return decode_marks(file.read(0, file.size()), self._store, base, chain)
        finally:
            file.close()

    def _make(self, base: int, chain: int) -> SegmentMarks:
        marks = self.made_of(self._catalog.index(base))
        if self._writes:
            with suppress(OSError):  # missing marks are made when they are needed
                self._write(base, encode_marks(marks, self._store, base, chain))
        return marks

    def made_of(self, index: SegmentIndex) -> SegmentMarks:
        """Return the marks of a segment, from the heads of its records."""
        found = {}
        for key, lane in index.lanes.items():
            entries = entries_of(index.base, lane, lane.first, lane.next - lane.first)
            marks: list[int] = []
            keep_to = index.end - index.base
            runs = self._reader.carried(entries, lane.first, lane.next - lane.first, keep_to)
            for number, run in enumerate(runs):
                marks += [hash << 32 | number for hash in run.key_hashes()]
            if marks:
                marks.sort()
                hashes = array("I", [mark >> 32 for mark in marks])
                found[key] = LaneMarks(hashes, array("I", [mark & 0xFFFF_FFFF for mark in marks]))
        return found

    def _write(self, base: int, data: bytes) -> None:
        name = segment_name(base, SUFFIX)
        try:
            file = self._directory.open(name, write=True)
        except FileNotFoundError:
            file = self._directory.create(name)
        try:
            file.write(0, (data,), sync=False)
        finally:
            file.close()


def encode_marks(marks: SegmentMarks, store: bytes, base: int, chain: int) -> bytes:
    parts = []
    for (topic, queue), lane in marks.items():
        name = topic.encode()
        parts += [LANE.pack(queue, len(name)), name, MARKS.pack(len(lane.hashes))]
        parts += [lane.hashes.tobytes(), lane.numbers.tobytes()]
    body = b"".join(parts)
    head = HEAD.pack(MAGIC, 0, HEAD.size + len(body), store, base, chain, len(marks))
    crc = crc32(body, crc32(head[CRC_END:]))
    return MAGIC + crc.to_bytes(4, "little") + head[CRC_END:] + body


def decode_marks(data: bytes, store: bytes, base: int, chain: int) -> SegmentMarks:
    """Return the marks in `data`. Raises BadMarks if they are not sound, or of another segment."""
    try:
        magic, crc, size, *whose, records, lanes = HEAD.unpack_from(data)
        if (magic, whose) != (MAGIC, [store, base]) or not HEAD.size <= size <= len(data):
            raise BadMarks("not of this segment")
        if chain and records != chain:
            raise BadMarks("of another segment at this place")
        if crc32(memoryview(data)[CRC_END:size]) != crc:
            raise BadMarks("the checksum does not match")
        found, at = {}, HEAD.size
        for _ in range(lanes):
            queue, name_size = LANE.unpack_from(data, at)
            at += LANE.size
            topic, at = data[at : at + name_size].decode(), at + name_size
            (count,) = MARKS.unpack_from(data, at)
            at += MARKS.size
            hashes = array("I", data[at : at + 4 * count])
            numbers = array("I", data[at + 4 * count : at + 8 * count])
            at += 8 * count
            found[topic, queue] = LaneMarks(hashes, numbers)
    except (StructError, UnicodeDecodeError, ValueError) as error:
        raise BadMarks(str(error)) from None
    return found
