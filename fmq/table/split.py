"""A split: a part of one segment that can be read by itself, on any machine."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from fmq.errors import Damaged, FmqError, NewerFormat, NotAStore, Unreadable
from fmq.machine.disk import Disk, File
from fmq.recovery.layout import look, store_of
from fmq.store.bytes.kinds import Record
from fmq.store.index.catalog import SUFFIX
from fmq.store.index.index import LaneSummary, QueueKey, SegmentIndex
from fmq.store.index.index_blocks import BadIndex, decode_head
from fmq.store.index.index_file import index_in, read_front
from fmq.store.journal.scan import Finding, Scan, end_of
from fmq.store.journal.segment import (
    HEADER_BYTES,
    OTHER_COPY,
    OTHER_RECORDS,
    decode_header,
    segment_name,
)
from fmq.table.extents import Extent
from fmq.table.journal_places import directory_at
from fmq.table.table_errors import OtherStore, Overtaken
from fmq.tx.ledger.apply_parts import apply_to_index


@dataclass(frozen=True, slots=True)
class Split:
    """Whole appends of one segment, from the position `start` up to, not including, `end`."""

    path: str
    store: bytes
    base: int
    start: int
    end: int
    data_end: int
    """Where the data of a sealed segment ends; 0: it may still be written."""
    engine: str = ""
    host: str | None = None
    epoch: int = 0
    """As the segment's header has it; 0: unknown."""
    chain: int = 0
    """The checksum of a sealed segment's records; 0: unknown."""

    @property
    def file(self) -> str:
        return segment_name(self.base)


class OpenSplit:
    """A split, with the file of its segment open."""

    def __init__(
        self, split: Split, file: File, disk: Disk | None, in_memory: SegmentIndex | None
    ) -> None:
        self.split = split
        self.file = file
        self._disk = disk
        self._in_memory = in_memory
        self.seed = seed_of(split.store)
        self.sound_to = split.start
        """Behind the last whole append that was read."""
        self.trouble: FmqError | None = None
        """Why the index ends before the split does, if it had to be made from the records."""

    def appends(self) -> Iterator[list[Record]]:
        """Yield the appends in order. Raises Damaged or NewerFormat after the last sound one, if
        more bytes follow.
        """
        split = self.split
        self.sound_to = split.start
        where = self.file, split.base, split.end, split.start
        scan = Scan(*where, self.seed, 0, split.base + HEADER_BYTES)
        for append in scan:
            yield append
            self.sound_to = end_of(append)
        ending = scan.ending
        assert ending is not None
        if ending.finding is Finding.NEWER:
            raise NewerFormat(split.file, ending.position, ending.reason)
        if ending.finding is not Finding.END or ending.append_start != ending.position:
            reason = ending.reason or "an append goes on behind what may be read of it"
            raise Damaged(split.file, ending.position, f"{reason}; this part had been durable")
        if split.chain and split.end == split.data_end and scan.chain not in (None, split.chain):
            raise Damaged(split.file, split.base, OTHER_RECORDS)

    def index(self) -> SegmentIndex:
        """Return an index with all messages of the split, and maybe others of its segment.

        If it is made from records that are not all sound, it ends before the first bad one.
        """
        split = self.split
        if self._in_memory is not None:
            return self._in_memory
        if split.data_end:
            where = split.path, split.base, split.store
            found = read_index(*where, self._disk, split.chain)
            if found is not None and found.end == split.data_end:
                return found
        index = SegmentIndex(split.base)
        try:
            for append in self.appends():
                apply_to_index(index, append)
        except (Damaged, NewerFormat) as trouble:
            self.trouble = trouble
        return index


def seed_of(store: bytes) -> int:
    """Return the seed of the checksums in the records of a store."""
    return zlib.crc32(store)


def read_index(
    path: str, base: int, store: bytes, disk: Disk | None, chain: int
) -> SegmentIndex | None:
    """Return the index of a sealed segment from its file; None if that file is missing or not
    sound.
    """
    try:
        with opened_file(path, segment_name(base, SUFFIX), disk, 0) as file:
            return index_in(file, store, base, chain)
    except (OSError, BadIndex):
        return None


def lanes_in(seen: Extent, store: bytes, disk: Disk | None) -> dict[QueueKey, LaneSummary] | None:
    """Return what a segment holds of each queue, by its index; None if only its records could
    tell.
    """
    if seen.in_memory is not None:
        return seen.in_memory.summary()
    if not seen.sealed:
        return None
    base = seen.segment.base
    try:
        with opened_file(seen.path, segment_name(base, SUFFIX), disk) as file:
            head = decode_head(read_front(file), 0, store, base, seen.segment.chain)
    except (OSError, BadIndex):
        return None
    return {key: summary for key, summary, _, _ in head.lanes}


@contextmanager
def opened(
    split: Split, disk: Disk | None = None, in_memory: SegmentIndex | None = None
) -> Iterator[OpenSplit]:
    """Open the file of `split`. `in_memory` is the index of its segment, if that is known.

    Raises OtherStore if the file is of another store, Overtaken if retention has dropped it, and
    Unreadable.
    """
    with ExitStack() as stack:
        try:
            try:
                file = stack.enter_context(opened_file(split.path, split.file, disk, split.end))
            except FileNotFoundError:
                _check_store(split, _store_at(split.path, disk))
                raise Overtaken(split.path, split.file) from None
            # A header that is not sound proves nothing. The records' checksums also cover the
            # store.
            header = None
            with suppress(Damaged, NewerFormat):
                header = decode_header(file.read(0, HEADER_BYTES), split.file)
            if header is not None:
                _check_store(split, header.store)
                if header.epoch != split.epoch and split.epoch:
                    raise Damaged(split.file, split.base, OTHER_COPY)
            yield OpenSplit(split, file, disk, in_memory)
        except FileNotFoundError:  # a piece of a home
            raise Overtaken(split.path, split.file) from None
        except OSError as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable(split.path, error) from error


def _check_store(split: Split, found: bytes | None) -> None:
    if found != split.store:
        raise OtherStore(split.path, split.store.hex(), None if found is None else found.hex())


def _store_at(path: str, disk: Disk | None) -> bytes | None:
    """Return the UUID of the store that is at `path` now; None if none can be read."""
    directory = directory_at(path, disk)
    try:
        layout = look(directory)
        return None if layout.fresh else store_of(directory, layout)
    except (NotAStore, Damaged, NewerFormat):
        return None
    finally:
        directory.close()


@contextmanager
def opened_file(path: str, name: str, disk: Disk | None, upto: int | None = None) -> Iterator[File]:
    """Open the file `name` of the directory at `path`, on this machine or on the given disk. It is
    read up to a position of the journal.
    """
    directory = directory_at(path, disk, upto)
    try:
        file = directory.open(name)
    finally:
        directory.close()
    try:
        yield file
    finally:
        file.close()
