"""Bodies as the column `value` of a table: which type it has, and who makes it.

It is made from JSON by the reader of the messages, or by a function of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from fmq.errors import BadOption, UsageError
from fmq.table.fleet import see_all
from fmq.table.schema import VALUE, VIEWS
from fmq.table.value_column import check_value_type, value_type

STORED = "stored"
Decode = Callable[[pa.RecordBatch], pa.Array]
NEEDED = pa.schema([(name, VIEWS["messages"][name]) for name in ("topic", "headers", "body")])
"""What a function gets of each message."""


class NotDecoded(UsageError):
    """A function has not made a value of each message. Nothing of the batch is in the table."""


class TypedBodies(NamedTuple):
    """The column `value`."""

    type: pa.DataType
    decode: Decode | None
    """Makes it; None if the reader of the messages does."""

    def read(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that have to be read for rows of `schema`."""
        if self.decode is None:
            return schema
        others = [field for field in schema if field.name != VALUE]
        lacking = [field for field in NEEDED if field.name not in schema.names]
        return pa.schema(others + lacking)

    def typed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows of `schema`. Raises NotDecoded."""
        if self.decode is None:
            return batch
        values = _made(self.decode, batch.select(NEEDED.names), self.type)
        columns = [values if name == VALUE else batch.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def typed_by(codec: Any, paths: Sequence[str], topics: Collection[str] | None) -> TypedBodies:
    """Return what `codec` makes of bodies of `topics`: "stored", a schema of Arrow for bodies that
    are JSON objects, or a function from messages to an array. Raises BadOption or NotDecoded.
    """
    if codec == STORED:
        chosen = None if topics is None else frozenset(topics)
        return TypedBodies(value_type(see_all(paths, waiting=True), chosen), None)
    if isinstance(codec, (pa.Schema, pa.StructType)):
        kind = pa.struct(list(codec))
        check_value_type(kind)
        return TypedBodies(kind, None)
    if not callable(codec):
        raise BadOption(
            f"codec={codec!r:.80}: is 'stored', a schema of Arrow, or a function of messages. "
            "Nothing was written."
        )
    nothing = pa.RecordBatch.from_pylist([], NEEDED)
    return TypedBodies(_made(codec, nothing, None).type, codec)


def _made(decode: Decode, messages: pa.RecordBatch, kind: pa.DataType | None) -> pa.Array:
    try:
        values = decode(messages)
        found = getattr(values, "type", None)
        fits = kind in (None, found) and found not in (None, pa.null())
        if len(values) != messages.num_rows or not fits:
            raise TypeError(
                f"it returned {len(values)} of {found} for {messages.num_rows} messages"
                + ("" if kind is None else f", and {kind} for none")
            )
    except Exception as error:
        name = getattr(decode, "__qualname__", repr(decode))
        raise NotDecoded(
            f"{name} has made no array of values of messages: {type(error).__name__}: {error}. "
            "Nothing of this batch is in the table."
        ) from error
    return values
