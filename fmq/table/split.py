"""A part of one segment that can be read by itself, wherever the reader runs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from fmq.disk import Disk, File
from fmq.errors import Damaged, Unreadable
from fmq.real_disk import RealDisk
from fmq.recovery.replay import index_append
from fmq.store.catalog import SUFFIX
from fmq.store.index import BadIndex, SegmentIndex, decode_blocks
from fmq.store.kinds import Record
from fmq.store.scan import Finding, Scan
from fmq.store.segment import segment_name
from fmq.table.errors import Overtaken


@dataclass(frozen=True, slots=True)
class Split:
    """Whole appends of one segment, from the position `start` up to, not with, `end`."""

    path: str
    store: bytes
    base: int
    start: int
    end: int
    data_end: int
    """Where the data of a sealed segment ends; 0: it may still be written."""
    engine: str = ""
    host: str | None = None

    @property
    def file(self) -> str:
        return segment_name(self.base)


class OpenSplit:
    """A split with its segment's file."""

    def __init__(self, split: Split, file: File, disk: Disk | None) -> None:
        self.split = split
        self.file = file
        self._disk = disk
        self.seed = zlib.crc32(split.store)

    def appends(self) -> Iterator[list[Record]]:
        """What was appended, in order; Damaged if it is not all there."""
        split = self.split
        return self._scan(split.start, split.end)

    def _scan(self, start: int, end: int) -> Iterator[list[Record]]:
        scan = Scan(self.file, self.split.base, end, start, self.seed)
        yield from scan
        ending = scan.ending
        assert ending is not None
        if ending.finding is not Finding.END:
            raise Damaged(
                self.split.file, ending.position, f"{ending.reason}; this part had been durable"
            )

    def index(self) -> SegmentIndex:
        """What is known of the split's messages, and perhaps of others in its segment."""
        split = self.split
        if split.data_end and (found := self._sealed_index()) is not None:
            return found
        index = SegmentIndex(split.base)
        for append in self.appends():
            index_append(index, append)
        return index

    def _sealed_index(self) -> SegmentIndex | None:
        """The index as it was written; None if it is not there or not sound."""
        split = self.split
        try:
            with opened_file(split.path, segment_name(split.base, SUFFIX), self._disk) as file:
                index = decode_blocks(file.read(0, file.size()), split.store, split.base)
        except (OSError, BadIndex):
            return None
        return index if index.end == split.data_end else None


@contextmanager
def opened(split: Split, disk: Disk | None = None) -> Iterator[OpenSplit]:
    """`split` with its file open; Overtaken if retention has dropped it meanwhile."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(opened_file(split.path, split.file, disk))
        except FileNotFoundError:
            raise Overtaken(split.path, split.file) from None
        except OSError as error:
            raise Unreadable(split.path, error) from error
        yield OpenSplit(split, file, disk)


@contextmanager
def opened_file(path: str, name: str, disk: Disk | None) -> Iterator[File]:
    """The file `name` of the directory at `path`, on this machine unless another is handed in."""
    directory = (disk or RealDisk()).directory(path, make=False)
    try:
        file = directory.open(name)
    finally:
        directory.close()
    try:
        yield file
    finally:
        file.close()
