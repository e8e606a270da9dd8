"""A journal for the tests of the store, with no engine above it, and what one reads back of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from fmq.machine.disk import Directory, Disk
from fmq.store.bytes.content import OF_PLACE
from fmq.store.bytes.encoding import encode_all, measured
from fmq.store.bytes.kinds import Carryover, Record
from fmq.store.bytes.record import FIRST, LAST, aligned
from fmq.store.journal.files import Files
from fmq.store.journal.journal import Journal, create_first_segment
from fmq.store.journal.scan import Finding, Scan, ScanEnd
from fmq.store.journal.segment import HEADER_BYTES, Segment, decode_header, is_segment
from fmq.store.journal.spares import Spares
from tests.store.samples import SEED, STORE

PATH = "data"
CAPACITY = 4096


def directory_of(disk: Disk) -> Directory:
    return disk.directory(PATH, make=True)


def make_journal(disk: Disk, capacity: int = CAPACITY) -> Journal:
    """A new journal in "data"."""
    directory = directory_of(disk)
    first = create_first_segment(directory, STORE, capacity)
    return Journal(
        directory, STORE, [first], Spares(directory, capacity, capacity), Files(directory), capacity
    )


def note(text: str | bytes, size: int = 0) -> Carryover:
    """A record that says `text`, padded with blanks to `size` bytes of it."""
    data = text.encode() if isinstance(text, str) else text
    return Carryover(data.ljust(size), 1)


def append_notes(journal: Journal, records: list[Record]) -> None:
    """Append measured records, for which there is room."""
    for record in records:
        record.flags &= ~OF_PLACE
    records[0].flags |= FIRST
    records[-1].flags |= LAST
    where = journal.position, 1, journal.durable_to, journal.seed, journal.current.chain
    journal.append(*encode_all(records, *where))


def plan(journal: Journal, records: list[Record]) -> list[Record]:
    """Do what a writer does under the lock: measure, roll if necessary, place, append."""
    if not journal.fits(measured(records)):
        journal.roll(0, ordinary=True)
    append_notes(journal, records)
    return records


def append(journal: Journal, *texts: str, size: int = 0, sync: bool = True) -> list[Record]:
    """One append of a note for each text, written at once."""
    records: list[Record] = [note(text, size) for text in texts]
    plan(journal, records)
    journal.write(journal.take_pending(), sync=sync)
    journal.durable_to = journal.position
    return records


class Found:
    """What lies in the files of a journal: its segments, its appends, and how they end."""

    def __init__(self, disk: Disk) -> None:
        directory = directory_of(disk)
        self.segments: list[Segment] = []
        self.appends: list[list[Record]] = []
        self.endings: list[ScanEnd] = []
        self.chains: list[int | None] = []
        for name in sorted(filter(is_segment, directory.names())):
            file = directory.open(name)
            header = decode_header(file.read(0, HEADER_BYTES), name)
            if self.segments:
                assert self.segments[-1].limit == header.base
                self.segments[-1].end = header.previous_end
                self.segments[-1].chain = header.previous_chain
            self.segments.append(
                Segment(header.base, header.capacity, header.base + HEADER_BYTES, 0)
            )
        for segment in self.segments:
            sealed = segment is not self.segments[-1]
            start = segment.base + HEADER_BYTES
            limit = segment.end if sealed else segment.limit
            file = directory.open(segment.name)
            scan = Scan(file, segment.base, limit, start, SEED, 0, start)
            appends = list(scan)
            assert scan.ending is not None
            assert not sealed or scan.ending.finding is Finding.END, scan.ending
            assert not sealed or scan.chain == segment.chain
            if not sealed:
                segment.end = scan.ending.append_start
            self.appends += appends
            self.endings.append(scan.ending)
            self.chains.append(scan.chain)
        self.directory = directory

    @property
    def texts(self) -> list[list[str]]:
        """Return the texts of each append."""
        return [[text_of(record) for record in append] for append in self.appends]


def text_of(record: Record) -> str:
    assert isinstance(record, Carryover)
    return record.json.decode().rstrip()


def chain_over(data: bytes, append: list[Record], base: int, chain: int) -> int:
    """The chain of a segment, computed from its bytes as the docstring of segment.py says."""
    for record in append:
        at = record.position - base
        chain = zlib.crc32(data[at + 4 : at + 8], chain)
    return chain


def end_of(append: list[Record]) -> int:
    return append[-1].position + aligned(append[-1].size)


def files_of(disk: Disk) -> dict[str, bytes]:
    """All bytes of all files."""
    directory = directory_of(disk)
    files = {}
    for name in directory.names():
        file = directory.open(name)
        files[name] = file.read(0, file.size())
    return files


def failing(work: Callable[[], object]) -> BaseException | None:
    """Return the error that `work` raises; None if it raises none."""
    try:
        work()
    except BaseException as error:
        return error
    return None
