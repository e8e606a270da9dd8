"""Reads journals as streams: where reading goes on, and where a batch ends.

A batch has whole appends and whole joint decisions, so it never has a part of either. If retention
drops what was not yet read, the stream fails, or counts it if that is allowed. This module does not
know Spark.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from fmq.errors import Damaged
from fmq.machine.disk import Disk
from fmq.recovery.layout import read_header
from fmq.store.bytes.record import EXTENDED, FIRST, LAST
from fmq.store.journal.segment import HEADER_BYTES
from fmq.table.boundaries import Boundaries
from fmq.table.extents import Extent
from fmq.table.joint_ends import whole_end
from fmq.table.journal_places import directory_at
from fmq.table.selection import EVERYTHING
from fmq.table.snapshot import Snapshot, flags_at
from fmq.table.split import OpenSplit, lanes_in, opened
from fmq.table.table_errors import Outrun, located

ALONE = FIRST | LAST | EXTENDED


class ReadPoint(NamedTuple):
    """How far a journal has been read."""

    position: int
    """An append begins here, or will."""
    skipped_bytes: int = 0
    """How much of the journal was dropped before it was read, in all."""


@dataclass(slots=True)
class BatchRoom:
    """How much more a batch may take. None: there is no limit."""

    messages: int | None = None
    bytes: int | None = None
    empty: bool = True
    """Nothing is in it yet, so an append that is larger than all the room goes whole."""

    @property
    def limited(self) -> bool:
        return self.messages is not None or self.bytes is not None

    def fits(self, messages: int, size: int) -> bool:
        return (self.messages is None or messages <= self.messages) and (
            self.bytes is None or size <= self.bytes
        )

    def take(self, messages: int, size: int) -> None:
        self.empty = False
        if self.messages is not None:
            self.messages -= messages
        if self.bytes is not None:
            self.bytes -= size


def go_on(
    journal: Snapshot, point: ReadPoint, stop: int, *, skip: bool, disk: Disk | None = None
) -> ReadPoint:
    """Return the position where reading goes on after `point`, at most `stop`.

    If retention has dropped that place, return the end of the gap if gaps may be skipped, or raise
    Outrun.
    """
    if point.position >= journal.first:
        return point
    end = min(_dropped_to(journal, disk), stop)
    lost = max(0, end - point.position)
    if lost and not skip:
        raise Outrun(journal.path, point.position, end)
    return ReadPoint(min(journal.first, stop), point.skipped_bytes + lost)


def append_at(journal: Snapshot, position: int, disk: Disk | None = None) -> int:
    """Return where the append or joint decision begins in which `position` lies; `position` itself
    if one begins there, or none is there.
    """
    for seen in journal.segments:
        begin = seen.segment.base + HEADER_BYTES
        if begin < position < seen.end:
            with located(seen.path), _opened_whole(journal, seen, begin, seen.end, disk) as source:
                base = seen.segment.base
                flags = flags_at(source.file, base, position - base, source.seed)
                if flags & ALONE == FIRST | LAST:
                    return position  # an append that is no ending of a joint decision
                if not flags & FIRST:
                    index = seen.in_memory or source.index()
                    position = Boundaries(source, index).before(position)
            break
    return whole_end(journal, 0, position, journal.visible_to, disk)


def _dropped_to(journal: Snapshot, disk: Disk | None) -> int:
    """Return the end of the data in the last segment that was dropped."""
    directory = directory_at(journal.segments[0].path, disk)
    try:
        return read_header(directory, journal.first).previous_end
    except FileNotFoundError:
        return journal.first  # retention dropped that segment, too, after the snapshot
    finally:
        directory.close()


def batch_end(
    journal: Snapshot,
    start: int,
    stop: int,
    room: BatchRoom,
    *,
    permissive: bool = False,
    disk: Disk | None = None,
) -> int:
    """Return the end of the batch: after whole appends, for as many as `room` allows.

    Take them from `room`. Raise Damaged, or, if `permissive`, take all of a damaged segment, as
    readers leave it out.
    """
    if not room.limited:
        return max(start, stop)
    end = start
    for seen in journal.segments:
        low, high = max(start, seen.segment.base + HEADER_BYTES), min(stop, seen.end)
        if low >= high:
            continue
        if not room.fits(0, 0):
            break  # take an append whole even if it is larger than a batch
        try:
            with located(seen.path):
                reached = _end_in(journal, seen, low, high, room, disk)
        except Damaged:
            if not permissive:
                raise
            reached = high
        if reached > low:
            end = reached
        if reached < high:
            break
    return whole_end(journal, start, end, stop, disk)


def _end_in(
    journal: Snapshot, seen: Extent, low: int, high: int, room: BatchRoom, disk: Disk | None
) -> int:
    """Return the end of the batch, if `low` and `high` lie in one segment."""
    messages = _messages_of_whole(journal, seen, low, high, disk)
    if messages is not None and room.fits(messages, high - low):
        room.take(messages, high - low)
        return high
    with _opened_whole(journal, seen, low, high, disk) as source:
        boundaries = Boundaries(source, seen.in_memory or source.index())
        end = high
        if room.messages is not None:
            end = min(end, boundaries.holding(room.messages))
        if room.bytes is not None:
            end = min(end, low + room.bytes)
        if end < high:
            end = boundaries.before(end)
        if end == low and room.empty:
            end = boundaries.after(low)
        if end > low:
            room.take(boundaries.messages_before(end), end - low)
        return end


def messages_between(
    journal: Snapshot, start: int, stop: int, enough: int, disk: Disk | None = None
) -> int:
    """Return how many messages are published from `start` up to `stop`, both between two appends;
    at least `enough` if there are more.
    """
    found = 0
    for seen in journal.segments:
        low, high = max(start, seen.segment.base + HEADER_BYTES), min(stop, seen.end)
        if low >= high or found >= enough:
            continue
        messages = _messages_of_whole(journal, seen, low, high, disk)
        if messages is None:
            with located(seen.path), _opened_whole(journal, seen, low, high, disk) as source:
                index = seen.in_memory or source.index()
                messages = Boundaries(source, index).messages_before(high)
        found += messages
    return found


def _messages_of_whole(
    journal: Snapshot, seen: Extent, low: int, high: int, disk: Disk | None
) -> int | None:
    """Return how many messages are published from `low` to `high`, if this is a whole segment of
    which an index tells; else None.
    """
    if (low, high) != (seen.segment.base + HEADER_BYTES, seen.end):
        return None
    lanes = lanes_in(seen, journal.store, disk)
    return None if lanes is None else sum(lane.next - lane.first for lane in lanes.values())


def _opened_whole(
    journal: Snapshot, seen: Extent, low: int, high: int, disk: Disk | None
) -> AbstractContextManager[OpenSplit]:
    """Open the part of one segment from `low` to `high` as one split, of any size."""
    [split] = journal.splits(EVERYTHING, start=low, end=high, lanes=False, split_bytes=high)
    return opened(split, disk)
