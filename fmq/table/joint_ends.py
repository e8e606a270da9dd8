"""Finds an end for a part of a journal that splits no joint decision.

The endings of a joint decision are appends of their own, and may lie in several segments. Readers
see all of them or none, so a batch has all of them or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from fmq.errors import Damaged, NewerFormat
from fmq.machine.disk import Disk
from fmq.store.bytes.decoding import decode
from fmq.store.bytes.joint_column import EndingOf, joint_in
from fmq.store.bytes.kinds import Decided
from fmq.store.bytes.record import EXTENDED, LAST, aligned
from fmq.store.journal.files import read_front
from fmq.store.reading.window import UNREADABLE, refused
from fmq.table.selection import EVERYTHING
from fmq.table.snapshot import Snapshot
from fmq.table.split import OpenSplit, opened
from fmq.table.table_errors import located


def whole_end(journal: Snapshot, start: int, end: int, stop: int, disk: Disk | None) -> int:
    """Return `end`, at which an append begins, or, if that is an ending of a joint decision and not
    its first, where the decision begins; where it ends, if it begins at `start` or before.
    """
    if start < end < stop:
        # Whoever reads what lies behind `end` finds its damage.
        with suppress(Damaged, NewerFormat):
            for joint, append_end in _endings(journal, end, stop, disk):
                if joint is None or joint.joint >= end:
                    break
                if joint.joint > start:
                    return joint.joint
                end = append_end
    return end


def _endings(
    journal: Snapshot, start: int, stop: int, disk: Disk | None
) -> Iterator[tuple[EndingOf | None, int]]:
    """Yield for each append from `start` on which ending it is, if it is one, and where it ends.
    Only heads are read.
    """
    for split in journal.splits(EVERYTHING, start=start, end=stop, lanes=False, disk=disk):
        with located(split.path), opened(split, disk) as source:
            place = split.start - split.base
            while place < split.end - split.base:
                size, flags = read_front(source.file, split.base, place)
                if flags & LAST:
                    yield _ending(source, place, size, flags), split.base + place + aligned(size)
                place += aligned(size)


def _ending(source: OpenSplit, place: int, size: int, flags: int) -> EndingOf | None:
    if not flags & EXTENDED:
        return None
    data, position = source.file.read(place, size), source.split.base + place
    try:
        record = decode(data, 0, position, source.seed, bodies=False)
        return joint_in(record.extension) if isinstance(record, Decided) else None
    except UNREADABLE as error:
        raise refused(source.split.base, place, error) from None
