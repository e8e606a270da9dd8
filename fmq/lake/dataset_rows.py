"""Reads a part of a table that pyarrow knows as a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as dataset

from fmq.lake.table_part import TablePart


class DatasetRows:
    """The rows of a dataset. It opens no file before it is read."""

    def __init__(self, data: dataset.Dataset) -> None:
        self._data = data

    @property
    def columns(self) -> Sequence[str]:
        return list(self._data.schema.names)

    def count(self, part: TablePart | None = None) -> int:
        return int(self._data.count_rows(filter=None if part is None else _is_in(part)))

    def stores(self) -> set[str]:
        return stores_in(self._data.to_batches(columns=["store"]))

    def read(self, part: TablePart, columns: Sequence[str]) -> pa.Table:
        return self._data.to_table(columns=list(columns), filter=_is_in(part))

    def close(self) -> None:
        """Do nothing, because nothing is open between two calls."""


def stores_in(batches: Iterable[pa.RecordBatch]) -> set[str]:
    """Return the values of the column `store`."""
    return {store for batch in batches for store in batch.column("store").unique().to_pylist()}


def _is_in(part: TablePart) -> pc.Expression:
    wanted = pc.field("store") == part.store
    if part.first is not None:
        wanted &= pc.field("position") >= part.first
    if part.end is not None:
        wanted &= pc.field("position") < part.end
    return wanted
