"""The reader that `fmq.table.read` returns: rows as Arrow batches, and from where to where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from fmq.table.read_range import ReadRange, only


class TableReader:
    """Rows of journals, read as they are asked for, once. It has the methods of a
    pyarrow.RecordBatchReader, and libraries that read Arrow streams take it as one.
    """

    def __init__(
        self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], ranges: Sequence[ReadRange]
    ) -> None:
        self._reader = pa.RecordBatchReader.from_batches(schema, batches)
        self.ranges = tuple(ranges)
        """From where to where each journal is read, in the order of the rows."""

    @property
    def store(self) -> str:
        """Return the UUID of the store that is read, as hex. Raises BadOption if there are
        several.
        """
        return only(self.ranges, "store").store

    @property
    def first(self) -> int:
        """Return the position from which rows are read. Raises BadOption if there are several."""
        return only(self.ranges, "first").first

    @property
    def end(self) -> int:
        """Return the position up to which rows are read, which is `since` of the next read. Raises
        BadOption if there are several.
        """
        return only(self.ranges, "end").end

    @property
    def ends(self) -> dict[str, int]:
        """Return, for each store, the position up to which rows are read: `since` of the next read
        of these journals.
        """
        return {each.store: each.end for each in self.ranges}

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._reader)

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def read_all(self) -> pa.Table:
        """Return all rows that are left as one table."""
        return self._reader.read_all()

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch. Raises StopIteration after the last one."""
        return self._reader.read_next_batch()

    def read_pandas(self, **options: Any) -> Any:
        """Return all rows that are left as a DataFrame of pandas."""
        return self._reader.read_pandas(**options)

    def close(self) -> None:
        """Release what the reader holds. What was not read is not read any more."""
        self._reader.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._reader.__arrow_c_stream__(requested_schema)
