"""A batch of a delivery: the parts of journals whose rows are added to a table in one commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from fmq.errors import FmqError
from fmq.lake.typed_bodies import TypedBodies
from fmq.table.read import rows_of
from fmq.table.read_range import ReadRange
from fmq.table.selection import EVERYTHING, Selection
from fmq.table.snapshot import Snapshot

JournalPart = tuple[Snapshot, ReadRange]


class LakeBatch:
    """Rows of one or more journals. Each part can be read once."""

    def __init__(
        self,
        parts: Sequence[JournalPart],
        view: str,
        schema: pa.Schema,
        wanted: Selection = EVERYTHING,
        bodies: TypedBodies | None = None,
    ) -> None:
        self.schema = schema
        self._wanted = wanted
        self._bodies = bodies
        self.rows = 0
        """How many were read so far."""
        self.error: FmqError | None = None
        """What has ended the reading, which a library may report as an error of its own."""
        self._batches = {part: self._read(journal, part, view) for journal, part in parts}

    @property
    def ranges(self) -> tuple[ReadRange, ...]:
        return tuple(self._batches)

    @property
    def bytes(self) -> int:
        """Return how many bytes of the journals the batch covers."""
        return sum(part.end - part.first for part in self.ranges)

    def has_rows(self) -> bool:
        """Return whether there is any row. Only the first rows are read."""
        for part, batches in self._batches.items():
            first = next(batches, None)
            if first is not None:
                self._batches[part] = chain([first], batches)
                return True
        return False

    def reader(self, part: ReadRange | None = None) -> pa.RecordBatchReader:
        """Return a reader of the rows of one part, by default of all."""
        wanted = self.ranges if part is None else (part,)
        batches = chain.from_iterable(self._batches[each] for each in wanted)
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def _read(self, journal: Snapshot, part: ReadRange, view: str) -> Iterator[pa.RecordBatch]:
        try:
            bodies = self._bodies
            schema = self.schema if bodies is None else bodies.read(self.schema)
            for batch in rows_of(journal, part, view, schema, self._wanted):
                self.rows += batch.num_rows
                yield batch if bodies is None else bodies.typed(batch, self.schema)
        except FmqError as error:
            self.error = error
            raise
