"""The columns and values of each view in each format. All engines write them alike.

Parquet and its like take a view as it is, without the topic, which is told by the folder. JSON has
no bytes and no times, and CSV no maps and lists either: there bytes are base64, times text in ISO
8601, and the rest JSON.

People open CSV in spreadsheets, which run what looks like a formula. So a text that begins as one
does, or with the mark itself, gets the mark ' in front: who takes away one ' has it as it was.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmq.export.errors import NotText
from fmq.export.layout import FolderLayout
from fmq.table.schema import schema_of

Change = Callable[[pa.Array], pa.Array]
BEGINS_FORMULA = r"^(['=+\-@\t\r\n＝＋－＠])"


@dataclass(frozen=True, slots=True)
class Shape:
    """The arguments of an export that all its runs share."""

    format: str
    view: str
    text: bool
    """Bodies are text."""
    fleet: bool
    """Rows tell whose they are."""
    raw: bool = True
    """No text has a mark that keeps a spreadsheet from running it."""

    @property
    def source(self) -> pa.Schema:
        """Return the columns that are read from the journal."""
        return schema_of(self.view, None, fleet=self.fleet)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the exported files."""
        empty = pa.RecordBatch.from_pylist([], self.source)
        return self.shaped(empty).schema

    def layout(self, topics: tuple[str, ...]) -> FolderLayout:
        return FolderLayout(self.view, topics if self.view == "messages" else ())

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of `batch` with the columns of the files. Raises NotText."""
        arrays, names = [], []
        for field in batch.schema:
            if field.name == "topic" and self.view == "messages":
                continue
            column = batch.column(field.name)
            if self.text and _has_bytes(field.type):
                column = _as_text(batch, column)
            change = _change(column.type, self.format)
            column = column if change is None else change(column)
            if not self.raw and pa.types.is_string(column.type):
                column = pc.replace_substring_regex(column, BEGINS_FORMULA, r"'\1")
            arrays.append(column)
            names.append(field.name)
        return pa.RecordBatch.from_arrays(arrays, names)


def _has_bytes(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_list(kind) else kind
    return bool(pa.types.is_binary(inner))


def _as_text(batch: pa.RecordBatch, column: pa.Array) -> pa.Array:
    kind = pa.list_(pa.string()) if pa.types.is_list(column.type) else pa.string()
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        raise NotText(
            f"{_first_binary(batch, column)} is not text in UTF-8, and bodies were to be written "
            "as text. Nothing of this part was written; export them as they are, without --text "
            "(text=False)."
        ) from None


def _first_binary(batch: pa.RecordBatch, column: pa.Array) -> str:
    """Return the first row whose body is not text."""
    row = next(number for number, value in enumerate(column.to_pylist()) if not _is_text(value))
    named = {"topic", "queue", "position", "name"}.intersection(batch.schema.names)
    where = {name: batch.column(name)[row].as_py() for name in named}
    of = where["name"] if "name" in where else f"{where['topic']}/{where['queue']}"
    return f"the body at position {where['position']} ({of})"


def _is_text(value: bytes | list[bytes] | None) -> bool:
    try:
        for body in [value] if isinstance(value, bytes) else value or ():
            body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _change(kind: pa.DataType, format: str) -> Change | None:
    if format not in ("csv", "json"):
        return None
    if pa.types.is_timestamp(kind):
        return _time_text
    if format == "csv":
        if pa.types.is_map(kind) or pa.types.is_list(kind):
            return _json_text
        if pa.types.is_binary(kind):
            return _base64_text
    if pa.types.is_decimal(kind):
        return _digits
    return None


def _digits(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _time_text(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    times = column.cast(pa.int64()).fill_null(0).to_numpy().view("datetime64[us]")
    texts: list[str | None] = [f"{text}Z" for text in np.datetime_as_string(times).tolist()]
    if column.null_count:
        there = column.is_valid().to_pylist()
        texts = [text if is_there else None for text, is_there in zip(texts, there, strict=True)]
    return pa.array(texts, pa.string())


def _base64_text(column: pa.Array) -> pa.Array:
    values = column.to_pylist()
    return pa.array(
        [None if value is None else base64.b64encode(value).decode() for value in values],
        pa.string(),
    )


def _json_text(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    values = plain_values(column)
    return pa.array([None if value is None else as_json(value) for value in values], pa.string())


def plain_values(column: pa.Array) -> list[Any]:
    """Return the values of a column, with maps as dictionaries."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    return values


def as_json(value: Any) -> str:
    """Return `value` as Spark's JSON: without spaces, letters not escaped, bytes in base64."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_bytes_text)


def _bytes_text(value: object) -> str:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()
