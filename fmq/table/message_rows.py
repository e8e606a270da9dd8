"""The view `messages` of a split: what consumers get, as Arrow batches.

The index says which records publish messages, so a split reads no others. Records without keys,
tags and headers, which are most, are cut with one unpack each. All others are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from struct import Struct

import numpy as np
import pyarrow as pa

from fmq.errors import Damaged, NewerFormat
from fmq.store.bytes.columns import Columns
from fmq.store.bytes.decoding import columns_of, decode
from fmq.store.bytes.kinds import REF_MESSAGE, Run
from fmq.store.bytes.pieces import BadColumns
from fmq.store.bytes.record import (
    HEAD_BYTES_MIN,
    PREFIX_BYTES,
    BadRecord,
    Misplaced,
    Newer,
)
from fmq.store.index.index_check import check_same
from fmq.table.entries import Column, RunEntries, entries_of
from fmq.table.gather import IN_BODIES, IN_COLUMNS, IN_EXTENSION, ROWS, Gatherer
from fmq.table.plain import PlainRecords
from fmq.table.selection import Selection
from fmq.table.split import OpenSplit
from fmq.table.windows import HEAD_BYTES, Piece, Windows

SIZES = Struct("<II")
BY_THEMSELVES = frozenset({"topic", "queue", "offset", "position"})
"""Columns that the index knows without the records."""


def read_messages(
    source: OpenSplit, schema: pa.Schema, wanted: Selection
) -> Iterator[pa.RecordBatch]:
    """Yield the visible messages of a split, in the order of commits, without runs that hold
    nothing wanted. Raises Damaged.
    """
    split = source.split
    start, stop = split.start - split.base, split.end - split.base
    index = source.index()
    entries = entries_of(index, wanted, start, stop, index.end - split.base)
    gatherer = Gatherer(schema, entries.keys, split.base)
    if BY_THEMSELVES.issuperset(schema.names):
        yield from _from_index(entries, gatherer)
    else:
        check_same(index, source.file, split.store)
        yield from _SplitReading(source, entries, gatherer, set(schema.names)).batches()
    if source.trouble is not None:
        raise source.trouble


def _from_index(entries: RunEntries, gatherer: Gatherer) -> Iterator[pa.RecordBatch]:
    nothing = np.zeros(len(entries), np.int64)
    columns = entries.lanes, entries.counts, entries.offsets, entries.places, nothing, nothing
    lines = _in_pieces(np.stack(columns))
    edges = np.flatnonzero(np.diff(np.cumsum(entries.counts) // ROWS, append=-1)) + 1
    for part in np.split(lines, edges, axis=1):
        if part.shape[1]:
            gatherer.add_plain(part, [])
            yield gatherer.take()


def _in_pieces(lines: Column) -> Column:
    """Return the rows of runs, after cutting runs of more than ROWS messages into several."""
    parts = -(-lines[1] // ROWS)
    cut = np.repeat(lines, parts, axis=1)
    before = ROWS * (np.arange(cut.shape[1]) - np.repeat(np.cumsum(parts) - parts, parts))
    cut[1] = np.minimum(cut[1] - before, ROWS)
    cut[2] += before
    return cut


class _SplitReading:
    """One pass over the records of a split."""

    def __init__(
        self, source: OpenSplit, entries: RunEntries, gatherer: Gatherer, columns: Set[str]
    ) -> None:
        self._split = source.split
        self._seed = source.seed
        self._entries = entries
        self._gatherer = gatherer
        self._bodies = not IN_BODIES.isdisjoint(columns)
        self._in_columns = any(name in columns for name in IN_COLUMNS)
        self._extras = not IN_EXTENSION.isdisjoint(columns)
        self._windows = Windows(source.file, bodies=self._bodies)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches. If a record is damaged, the rows before it come first."""
        trouble = None
        try:
            yield from self._full_ones()
        except (Damaged, NewerFormat) as error:
            trouble = error
        if self._gatherer.rows:
            yield self._gatherer.take()
        if trouble is not None:
            raise trouble

    def _full_ones(self) -> Iterator[pa.RecordBatch]:
        gatherer = self._gatherer
        for piece, low, high in self._windows.over(self._entries):
            what = piece, self._entries, low, high, self._split.base
            plain = PlainRecords(*what, bodies=self._bodies, extras=self._extras)
            for first, stop in (*plain.stretches(), (high, high)):
                for i in range(low, first):
                    yield from self._any(piece, i)
                low = first
                while low < stop:
                    taken = self._take_plain(plain, low, stop)
                    if not taken:
                        # This slower path finds what is wrong with the record.
                        yield from self._any(piece, low)
                    low += taken or 1
                    if gatherer.full:
                        yield gatherer.take()

    def _take_plain(self, plain: PlainRecords, low: int, stop: int) -> int:
        """Add entries from `low` on until the batch is full. Return how many; 0 if the entry at
        `low` is not sound.
        """
        entries, gatherer = self._entries, self._gatherer
        room = np.searchsorted(np.cumsum(entries.counts[low:stop]), ROWS - gatherer.rows) + 1
        part = slice(low, min(stop, low + int(room)))
        lines, bodies = plain.sound(part.start, part.stop, self._seed)
        taken: int = lines.shape[1]
        if not taken:
            return 0
        part = slice(low, low + taken)
        gatherer.add_plain(
            np.vstack(
                (
                    entries.lanes[part],
                    entries.counts[part],
                    entries.offsets[part],
                    entries.places[part],
                    lines,
                )
            ),
            bodies,
        )
        return taken

    def _any(self, piece: Piece, i: int) -> Iterator[pa.RecordBatch]:
        """Add entry `i`, of any shape, and yield the batches that become full."""
        entries, gatherer = self._entries, self._gatherer
        place, holder, stop = int(entries.places[i]), int(entries.holders[i]), int(entries.stops[i])
        try:
            if place == holder:
                run, columns = self._run(piece, place, stop)
            else:
                run, _ = self._run(piece, place, place + HEAD_BYTES)
                holding, columns = self._run(piece, holder, stop)
                if run.body_position != holding.position or run.count != holding.count:
                    raise BadRecord(f"does not publish what lies at {holding.position}")
            if run.offset != entries.offsets[i] or run.count != entries.counts[i]:
                raise BadRecord("not the messages that the index names")
            lane = int(entries.lanes[i])
            for first in range(0, run.count, ROWS):
                last = min(first + ROWS, run.count)
                gatherer.add(lane, run, place, columns, first, last, bodies=self._bodies)
                if gatherer.full:
                    yield gatherer.take()
        except (BadRecord, Misplaced, BadColumns) as error:
            raise Damaged(self._split.file, self._split.base + place, str(error)) from None
        except Newer as error:
            raise NewerFormat(self._split.file, self._split.base + place, str(error)) from None

    def _run(self, piece: Piece, place: int, stop: int) -> tuple[Run, Columns | None]:
        """Return the run at `place`, which ends before `stop`, and its columns if they are
        wanted.
        """
        at = piece.at(place)
        if at < 0:
            piece = self._windows.aside(place, HEAD_BYTES_MIN)
            at = place - piece.start
            if len(piece.data) - at < HEAD_BYTES_MIN:
                raise BadRecord("the file ends here")
        size, head_size = SIZES.unpack_from(piece.data, at + PREFIX_BYTES)
        needed = min(size if self._bodies else head_size, stop - place)
        if at + needed > len(piece.data):
            piece = self._windows.aside(place, needed)
            at = place - piece.start
        run = decode(piece.data, at, self._split.base + place, self._seed, bodies=self._bodies)
        if not isinstance(run, Run):
            raise BadRecord(f"a {run.kind.name} where the index names messages")
        if run.kind == REF_MESSAGE or not (self._bodies or self._in_columns):
            return run, None
        return run, columns_of(piece.data, at, run)
