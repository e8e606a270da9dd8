"""`spark.readStream.format("fmq")`: answers what Spark asks of a stream, batch by batch.

An offset is how far each journal was read, by its store, so a directory may be moved, and one
that appears later joins. Between two calls nothing is held but what the last look found.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from fmq.basics.clock import Clock, SystemClock
from fmq.errors import BadOption, NotAStore
from fmq.spark.options import ReadOptions
from fmq.spark.part import SparkPart, packed
from fmq.spark.types import arrow_schema
from fmq.spark.worker import spare_collections
from fmq.table.at_time import position_at
from fmq.table.fleet import see_all
from fmq.table.read import read_split
from fmq.table.snapshot import Snapshot
from fmq.table.split import Split
from fmq.table.stream import (
    BatchRoom,
    ReadPoint,
    append_at,
    batch_end,
    go_on,
    messages_between,
)
from fmq.table.table_errors import Outrun, Overtaken

Offset = dict[str, dict[str, int]]
Points = dict[str, ReadPoint]
ATTEMPTS = 5
SYSTEM_CLOCK = SystemClock()
LOG = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a stream on the driver, and reads a part of one on an executor."""

    def __init__(
        self, options: ReadOptions, schema: StructType, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock
        self._waits_since: float | None = None
        self._seen: dict[str, Snapshot] = {}
        self._targets: dict[str, int] | None = None
        self._turn = 0
        # By store: the bytes of gaps that were noticed after Spark had got its offset.
        self._skipped: dict[str, int] = {}

    # --- how far ----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        return as_offset({store: self._start(each) for store, each in self._look().items()})

    def _start(self, journal: Snapshot) -> ReadPoint:
        """Return where a stream begins that has no checkpoint."""
        options = self._options
        if options.from_latest:
            return ReadPoint(journal.visible_to)
        if options.from_position is not None:
            asked = max(options.from_position, journal.first)
            return ReadPoint(append_at(journal, min(asked, journal.visible_to)))
        if options.from_time_us is not None:
            at = position_at(journal, options.from_time_us, permissive=options.permissive)
            return ReadPoint(at)
        return beginning(journal)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Check the options here, at Spark's first question: it would hide an error of __init__ in
        # its own.
        options = self._options
        arrow_schema(options.view, self._schema)
        if options.view == "damage":
            raise BadOption(
                "view 'damage' tells what reading a whole journal has to leave out, so there is "
                "no stream of it. Nothing was read; spark.read reads it."
            )
        if options.records_max is not None:
            return ReadMaxRows(options.records_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        if options.records_min is not None:
            return ReadMinRows(options.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._targets = {store: journal.visible_to for store, journal in self._look().items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        points, room = as_points(start), self._room(limit)
        stores = list(self._look())
        if self._waits(points):
            return start
        # The first store may take all the room of a batch. So the stores take turns at being first.
        self._turn += 1
        first = self._turn % max(1, len(stores))
        for store in stores[first:] + stores[:first]:
            stop = self._visible_to(store)
            if self._targets is not None:
                stop = min(stop, self._targets.get(store, 0))
            if store in points:
                points[store] = self._advanced(store, points[store], stop, room)
            elif stop:
                # The rows of a new store come with the next batch, which then knows where to begin.
                points[store] = beginning(self._seen[store])
        return as_offset(points)

    def _waits(self, points: Points) -> bool:
        """Return whether the next batch waits until there are more messages."""
        least = self._options.records_min
        if least is None or self._targets is not None:
            return False
        found = 0
        for store, journal in self._seen.items():
            start = points.get(store, beginning(journal)).position
            if start < journal.first:
                return False  # something was dropped, which is told at once
            found += messages_between(journal, start, journal.visible_to, least - found)
        now = self._clock.monotonic()
        begun = now if self._waits_since is None else self._waits_since
        waits = found < least and now - begun < self._options.delay_seconds
        self._waits_since = begun if waits and found else None
        return waits

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        seen = self._seen or self._look()
        return as_offset({store: ReadPoint(journal.visible_to) for store, journal in seen.items()})

    def _look(self) -> dict[str, Snapshot]:
        """Return the journals as they are now, by store."""
        options = self._options
        seen = see_all(options.paths, permissive=options.permissive, waiting=True)
        self._seen = {journal.store.hex(): journal for journal in seen}
        return self._seen

    def _visible_to(self, store: str) -> int:
        """Return the position up to which the store's journal can be read; 0 if the journal is
        gone.
        """
        return self._seen[store].visible_to if store in self._seen else 0

    def _room(self, limit: ReadLimit) -> BatchRoom:
        """Return how much a batch may take, by Spark's limit and by the option."""
        match limit:
            case ReadMaxRows(max_rows=messages):
                return BatchRoom(messages, self._options.bytes_max)
            case ReadMaxBytes(max_bytes=size):
                return BatchRoom(self._options.records_max, size)
        return BatchRoom()

    def _advanced(self, store: str, point: ReadPoint, stop: int, room: BatchRoom) -> ReadPoint:
        """Return the point in one journal up to which a batch goes: from `point` on, at most to
        `stop`.
        """
        if missed := self._skipped.pop(store, 0):
            # Count this gap in a batch without rows, because an offset with rows counts only a gap
            # before its rows.
            return point._replace(skipped_bytes=point.skipped_bytes + missed)
        for _ in range(ATTEMPTS):
            journal = self._seen.get(store)
            if journal is None or stop <= point.position:
                break
            try:
                found = self._behind_gap(journal, point, stop)
                end = batch_end(
                    journal, found.position, stop, room, permissive=self._options.permissive
                )
            except Outrun:
                raise
            except Overtaken:
                self._look()  # look again, to learn which part was just dropped
            else:
                return found._replace(position=end)
        return point

    def _behind_gap(self, journal: Snapshot, point: ReadPoint, stop: int) -> ReadPoint:
        found = go_on(journal, point, stop, skip=self._options.skip_gaps)
        if found.skipped_bytes > point.skipped_bytes:
            LOG.warning(
                "%s: retention dropped the journal from position %d up to %d before this stream "
                "read it; it goes on behind the gap, as onGap=skip says",
                journal.path,
                point.position,
                found.position,
            )
        return found

    # --- what is in it ----------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        before, after = as_points(start), as_points(end)
        found, options = list[Split](), self._options
        self._look()
        for store, point in after.items():
            begin = before.get(store, point)
            if begin.position < point.position:
                found += self._splits(store, begin, point)
        return [*packed(found, options.partition_bytes, options.partitions_min)]

    def _splits(self, store: str, begin: ReadPoint, end: ReadPoint) -> list[Split]:
        journal = self._seen.get(store)
        if journal is None:
            raise NotAStore(
                f"{', '.join(self._options.paths)}: store {store} is in no directory there any "
                f"more, and its journal from position {begin.position} up to {end.position} was "
                "still to be read. Nothing of it was; put the directory back and start again."
            )
        # The offset counts a gap, which lies at its front.
        told = begin.position + end.skipped_bytes - begin.skipped_bytes
        found = self._behind_gap(journal, ReadPoint(told), end.position)
        if found.skipped_bytes:
            self._skipped[store] = self._skipped.get(store, 0) + found.skipped_bytes
        return journal.splits(
            self._options.wanted,
            start=found.position,
            end=end.position,
            lanes=self._options.view == "messages",
            split_bytes=self._options.split_bytes,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SparkPart):
            return  # Spark passes a partition of its own when there is nothing to read
        spare_collections()
        options = self._options
        schema = arrow_schema(options.view, self._schema)
        for split in partition.splits:
            try:
                yield from read_split(
                    split, options.view, schema, options.wanted, permissive=options.permissive
                )
            except Overtaken:
                if not options.skip_gaps:
                    raise
                LOG.warning(
                    "%s: retention dropped the journal from position %d up to %d after this batch "
                    "was planned; it is left out, as onGap=skip says, and no offset counts it",
                    *(split.path, split.start, split.end),
                )


def beginning(journal: Snapshot) -> ReadPoint:
    """Return the point before everything in `journal`."""
    return ReadPoint(journal.first)


def as_offset(points: Points) -> Offset:
    """Return the offset as JSON for Spark's checkpoint. Equal points give equal text."""
    return {store: points[store]._asdict() for store in sorted(points)}


def as_points(offset: dict[str, Any]) -> Points:
    return {store: ReadPoint(**said) for store, said in offset.items()}
