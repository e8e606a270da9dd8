"""The work of a Spark executor on some splits: return their rows, or make their files.

Spark may run a task twice, at once or one after the other, and take the results of either. So each
attempt makes files of its own, with names that nobody looks at; the driver is told those of the
attempt that counts, and shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from fmq.export.arrow import PartFiles, fill
from fmq.export.destination import PART, hidden
from fmq.export.layout import FolderLayout
from fmq.export.plan import size_of
from fmq.export.shape import Shape
from fmq.spark.worker import spare_collections
from fmq.table.gather import chosen
from fmq.table.read import read_split
from fmq.table.split import Split

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]
"""What Spark calls with the numbers of the tasks that are to be done."""
FILES = pa.schema([pa.field("file", pa.string())])


class Tasks(NamedTuple):
    """The work of one Spark job, for all its tasks."""

    splits: Sequence[Sequence[Split]]
    """By the number of the task."""
    shape: Shape
    layout: FolderLayout
    permissive: bool
    rows: Any
    """Counts them; so does the next one."""
    bytes: Any

    @property
    def rows_schema(self) -> pa.Schema:
        return self.shape.schema.append(pa.field(PART, pa.string()))

    def rows_with_parts(self) -> Work:
        """Yield the rows, each with its part."""
        return self._each(self._rows_of)

    def files_in(self, staging: str) -> Work:
        """Write the rows to files in the folders `part=...` of `staging`. Yield the names of the
        files.
        """
        return self._each(lambda number: self._files_of(number, staging))

    def _each(self, work: Callable[[int], Batches]) -> Work:
        def run(numbers: Batches) -> Batches:
            spare_collections()
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from work(number)

        return run

    def _rows_of(self, number: int) -> Batches:
        shape = self.shape
        for split in self.splits[number]:
            for batch in read_split(split, shape.view, shape.source, permissive=self.permissive):
                self.rows.add(batch.num_rows)
                yield _with_part(shape.shaped(batch), *self.layout.parts_of(batch))
            self.bytes.add(size_of(split))

    def _files_of(self, number: int, staging: str) -> Batches:
        parts = PartFiles(staging, self.shape, hidden(number))
        splits = self.splits[number]
        fill(parts, splits, self.shape, self.layout, self._count, permissive=self.permissive)
        yield pa.RecordBatch.from_pydict({"file": parts.files}, FILES)

    def _count(self, rows: int, size: int) -> None:
        self.rows.add(rows)
        self.bytes.add(size)


def _with_part(batch: pa.RecordBatch, parts: list[str], numbers: Any) -> pa.RecordBatch:
    names = [*batch.schema.names, PART]
    return pa.RecordBatch.from_arrays([*batch.columns, chosen(parts, numbers)], names)
