"""Leaving of a batch the rows that are wanted: an index knows runs of messages, not each row."""

from __future__ import annotations

import pyarrow as pa

from fmq.table.schema import VIEWS
from fmq.table.wanted import Range, Wanted


def with_compared(schema: pa.Schema, view: str, wanted: Wanted) -> pa.Schema:
    """Return `schema` and behind it the columns of `view` that `wanted` compares."""
    for name in wanted.by_column():
        if name not in schema.names:
            schema = schema.append(pa.field(name, VIEWS[view][name]))
    return schema


def rows_wanted(batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
    """Return the rows of `batch` that are wanted. A null is never what a column must have."""
    for name, values in wanted.by_column().items():
        batch = batch.filter(_matches(batch.column(name), values))
    return batch


def _matches(column: pa.Array, values: frozenset[str] | frozenset[int] | Range) -> pa.Array:
    import pyarrow.compute as compute  # here: it takes a fifth of a second to import

    if not isinstance(values, Range):
        return compute.is_in(column, value_set=pa.array(sorted(values), column.type))
    numbers = column.cast(pa.int64())  # times are microseconds
    return compute.and_(
        compute.greater_equal(numbers, values.low), compute.less_equal(numbers, values.high)
    )
