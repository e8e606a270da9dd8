"""Converts the columns of a view to Spark's types, and the columns of a user's `.schema(...)`
back.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from fmq.errors import BadOption
from fmq.table.schema import VALUE, names_value, schema_of
from fmq.table.value_column import check_value_type

NEVER_NULL = {
    "messages": frozenset({"topic", "queue", "offset", "position", "body", "time", "delayed"})
}
"""By view, columns that Spark need not ask of each row whether they are null."""


def spark_schema(schema: pa.Schema, view: str | None = None) -> StructType:
    """Return the columns of `schema` in Spark's types, with the comments of `view`."""
    made: StructType = from_arrow_schema(schema)
    for field in made:
        field.nullable = field.name not in NEVER_NULL.get(view or "", ())
    return made


def arrow_schema(view: str, asked: StructType) -> pa.Schema:
    """Return the schema for the columns that `asked` names, with the types that Spark needs. Raises
    BadOption.
    """
    made: pa.Schema = to_arrow_schema(asked, timezone="UTC")
    value = None
    if names_value(view, made.names):
        value = made.field(VALUE).type
        check_value_type(value)
    ours = spark_schema(schema_of(view, asked.fieldNames(), fleet=False, value=value))
    for mine, theirs in zip(ours, asked, strict=True):
        if mine.dataType != theirs.dataType:
            raise BadOption(
                f"column {theirs.name!r} of view {view!r} is {mine.dataType.simpleString()}, not "
                f"{theirs.dataType.simpleString()}. Nothing was read; cast it in the query."
            )
    return made
