"""Finds the readable parts of a journal that need not be whole: shipped, or damaged.

No record is applied and none is believed for what came before it: names, headers and indexes
tell which segments there are, and of each its own bytes tell how far it goes. So a sound segment
is found whatever became of its neighbours, and planning reads no segment but the last.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from fmq.errors import Damaged, FmqError, NewerFormat
from fmq.machine.disk import Directory
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.checkpoint import SLOTS
from fmq.recovery.layout import LOCK, Layout, known_segment, look, store_of
from fmq.recovery.lost_slots import doubt
from fmq.recovery.tail import SOUND, judge, refusal
from fmq.store.index.catalog import SUFFIX, Catalog
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.scan import Finding, Scan, durable_beyond, end_of
from fmq.store.journal.segment import HEADER_BYTES, Segment, segment_name
from fmq.table.extents import Extent, LeftOut, left_out


class Surveyed(NamedTuple):
    """The segments that can be read, and the parts that are left out."""

    store: bytes
    segments: tuple[Extent, ...]
    left_out: tuple[LeftOut, ...]


def is_shipped(layout: Layout) -> bool:
    """Return whether there are only segments and maybe their indexes, so that no engine wrote here.

    Only closed segments are shipped, so the last one is closed, too.
    """
    return layout.names.isdisjoint((LOCK, *SLOTS))


def survey(directory: Directory, *, permissive: bool) -> Surveyed:
    """Return what can be read of `directory`. With `permissive` the rest is left out; else its
    error is raised.
    """
    return _Survey(directory, permissive=permissive).go()


class _Survey:
    def __init__(self, directory: Directory, *, permissive: bool) -> None:
        self._directory = directory
        self._permissive = permissive
        self._store = b""
        self._segments: list[Extent] = []
        self._left_out: list[LeftOut] = []

    def go(self) -> Surveyed:
        try:
            layout = look(self._directory)
            self._store = store_of(self._directory, layout)
            checkpoints.refuse_other_store(self._directory, self._store, layout.bases[-1])
        except (Damaged, NewerFormat, OSError) as error:
            self._leave_out(error, getattr(error, "file", self._directory.path), 0, 0)
            return Surveyed(b"", (), tuple(self._left_out))
        self._slots = checkpoints.read_slots(self._directory, self._store)
        checkpoint = self._slots.newest
        self._proven_to = checkpoint.applied_upto if checkpoint else 0
        # Look at the names again: the checkpoint may name a segment that did not exist before.
        self._layout = layout = look(self._directory)
        self._catalog = Catalog(self._directory, self._store, _not_built)
        for base, behind in pairwise((*layout.bases, None)):
            assert base is not None
            self._segment(base, behind)
        if checkpoint is not None:
            self._check_start(checkpoint.ledger["floor"])
        self._check_end()
        return Surveyed(self._store, tuple(self._segments), tuple(self._left_out))

    def _leave_out(self, error: FmqError | OSError, file: str, position: int, end: int) -> None:
        if not self._permissive:
            raise error
        self._left_out.append(left_out(error, file, position, end))

    # --- a segment --------------------------------------------------------------------------

    def _segment(self, base: int, behind: int | None) -> None:
        name = segment_name(base)
        try:
            segment, trouble = known_segment(self._directory, self._layout, base, behind)
            if behind is None or trouble is not None:
                self._by_itself(segment, sealed=behind is not None)
            else:
                self._add(segment, segment.end, sealed=True)
        except FileNotFoundError:
            return  # retention dropped the segment
        except (FmqError, OSError) as error:
            self._leave_out(error, name, base, behind or base + self._size(name))
            return
        if trouble is not None and segment.limit == behind:
            # `trouble` is the error of the next segment's header. With `permissive` it is met again
            # when that segment has its turn, and leaves it out.
            if not self._permissive:
                raise trouble
        elif trouble is not None and behind is not None:
            missing = Damaged(segment_name(segment.limit), segment.limit, "the segment is missing")
            self._leave_out(missing, missing.file, segment.limit, behind)

    def _by_itself(self, segment: Segment, *, sealed: bool) -> None:
        """Add a segment whose end no other segment names."""
        with suppress(_NotBuilt):
            end = self._catalog.index(segment.base).end
            if segment.base + HEADER_BYTES <= end <= segment.limit:
                self._add(segment, end, sealed=True)
                return
        file = self._directory.open(segment.name)
        try:
            start = segment.base + HEADER_BYTES
            seed = zlib.crc32(self._store)
            scan = Scan(file, segment.base, segment.limit, start, seed)
            ends = [start, *map(end_of, scan)]
            ending = scan.ending
            assert ending is not None
            durable_to = max(self._proven_to, scan.durable_to)
            if ending.finding not in (Finding.END, Finding.ZEROS):
                beyond = durable_beyond(file, segment.base, segment.limit, ending.position, seed)
                durable_to = max(durable_to, beyond)
        finally:
            file.close()
        closed = sealed or is_shipped(self._layout)
        verdict = judge(ending, durable_to)
        sound_to = ends[-1]
        if closed:
            # The whole segment was durable. After its data only zeros may follow.
            rest = Finding.END, Finding.ZEROS
            sound = ending.finding in rest and ending.position == ending.append_start
        else:
            sound = verdict in SOUND
            ends = ends[: max(1, bisect_right(ends, durable_to))]
        self._add(segment, ends[-1], sealed=False)
        if not sound:
            trouble = refusal(segment.name, ending, verdict, durable_to)
            # The end of its data is unknown. All bytes up to the limit may have been data.
            self._leave_out(trouble, segment.name, ends[-1], segment.limit)
        elif (error := doubt(self._directory, self._slots, ends[-1], sound_to)) is not None:
            self._leave_out(error, segment.name, ends[-1], sound_to)

    def _add(self, segment: Segment, end: int, *, sealed: bool) -> None:
        self._segments.append(Extent(self._directory.path, segment, end, sealed))

    def _size(self, name: str) -> int:
        try:
            file = self._directory.open(name)
        except OSError:
            return 0
        try:
            return file.size()
        finally:
            file.close()

    # --- both ends --------------------------------------------------------------------------

    def _check_start(self, floor: int) -> None:
        """Raise Damaged if the oldest segments are missing without a STATE, which retention writes
        before it drops any.
        """
        first = self._layout.bases[0]
        if floor < first:
            name = segment_name(floor)
            self._leave_out(Damaged(name, floor, "the segment is missing"), name, floor, first)

    def _check_end(self) -> None:
        """Check that all that is known to exist was found, or is left out already."""
        last = self._layout.bases[-1]
        ends = [seen.end for seen in self._segments]
        ends += [part.position + part.skipped_bytes for part in self._left_out]
        reach = max(ends, default=last)
        limit = max((seen.segment.limit for seen in self._segments), default=last)
        if self._proven_to > reach:
            start = reach if self._proven_to <= limit else max(reach, limit)
            name = segment_name(last if start < limit else start)
            reason = f"it is missing: the checkpoint knows data up to {self._proven_to}"
            self._leave_out(Damaged(name, start, reason), name, start, self._proven_to)
        elif segment_name(last, SUFFIX) in self._layout.names and not is_shipped(self._layout):
            # An index is written only after the next segment is durable and in use.
            name, reason = segment_name(limit), "the segment is missing: the one before was sealed"
            self._leave_out(Damaged(name, limit, reason), name, limit, limit)


class _NotBuilt(Exception):
    """An index is missing, and building one from the segment is not wanted."""


def _not_built(base: int) -> SegmentIndex:
    raise _NotBuilt
