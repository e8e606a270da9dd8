"""Chooses exactly the wanted rows of a batch. An index can only choose whole runs of messages."""

from __future__ import annotations

import pyarrow as pa

from fmq.table.schema import VIEWS
from fmq.table.selection import RowRange, Selection


def with_compared(schema: pa.Schema, view: str, wanted: Selection) -> pa.Schema:
    """Return `schema`, with those columns of `view` added at its end that `wanted` compares."""
    for name in wanted.by_column():
        if name not in schema.names:
            schema = schema.append(pa.field(name, VIEWS[view][name]))
    return schema


def rows_wanted(batch: pa.RecordBatch, wanted: Selection) -> pa.RecordBatch:
    """Return the rows of `batch` that are wanted. A row with null in a compared column is not."""
    for name, values in wanted.by_column().items():
        batch = batch.filter(_matches(batch.column(name), values))
    return batch


def _matches(column: pa.Array, values: frozenset[str] | frozenset[int] | RowRange) -> pa.Array:
    import pyarrow.compute as compute  # imported here, because it takes 0.2 s

    if not isinstance(values, RowRange):
        return compute.is_in(column, value_set=pa.array(sorted(values), column.type))
    numbers = column.cast(pa.int64())  # times are compared as microseconds
    return compute.and_(
        compute.greater_equal(numbers, values.low), compute.less_equal(numbers, values.high)
    )
