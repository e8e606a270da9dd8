"""An export read back with what reads such files everywhere, and what it should hold."""

import base64
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import fmq.table

Row = dict[str, Any]
BODIES = {"body", "bodies"}
NESTED = {"headers", "queues", "bodies", "acks"}


class Out:
    """The directory of an export."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def files(self) -> dict[str, bytes]:
        """Return what a reader of such folders sees."""
        found = {file.relative_to(self.path): file for file in self.path.rglob("*")}
        return {
            str(name): file.read_bytes()
            for name, file in sorted(found.items())
            if file.is_file() and not any(part[0] in "_." for part in name.parts)
        }

    def rows(self) -> list[Row]:
        """All rows in the order of their positions, folders' columns among them."""
        rows = [row for name in self.files() for row in self._rows_of(name)]
        return sorted(rows, key=_place)

    def _rows_of(self, name: str) -> Iterator[Row]:
        *folders, file = Path(name).parts
        told = {key: unquote(value) for key, _, value in (each.partition("=") for each in folders)}
        for row in READ[file.rpartition(".")[2]](self.path / name):
            yield told | row

    def schema(self) -> pa.Schema:
        """Return the schema of the files, if they are Parquet and agree."""
        [schema] = {
            pyarrow.parquet.read_schema(self.path / name).remove_metadata() for name in self.files()
        }
        return schema


def _place(row: Row) -> tuple[int, ...]:
    return tuple(int(row.get(name) or 0) for name in ("position", "offset"))


def _parquet(path: Path) -> list[Row]:
    rows: list[Row] = pyarrow.parquet.ParquetFile(path).read().to_pylist()
    return rows


def _csv(path: Path) -> list[Row]:
    """All as text; only what is not in quotes can be null."""
    with path.open(encoding="utf-8") as file:
        names = file.readline().rstrip("\n").replace('"', "").split(",")
    rows: list[Row] = pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    ).to_pylist()
    # As docs/spark.md tells programs: of a text that begins with ' one is taken away.
    return [
        {name: text.removeprefix("'") if text else text for name, text in row.items()}
        for row in rows
    ]


def _json(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


READ = {"parquet": _parquet, "csv": _csv, "json": _json}


def expected(path: str, format: str, view: str = "messages", *, text: bool = False) -> list[Row]:
    """Return what an export of all there is now should hold."""
    rows = [
        row
        for row in fmq.table.read(path, view).read_all().to_pylist()
        if row.get("state") != "undecided"
    ]
    return sorted((_expected(row, format, text) for row in rows), key=_place)


def _expected(row: Row, format: str, text: bool) -> Row:
    time = row["decided" if "decided" in row else "time"]
    made = {"date": f"{time:%Y-%m-%d}"}
    for name, value in row.items():
        if text and name in BODIES and value is not None:
            value = value.decode() if name == "body" else [each.decode() for each in value]
        if format != "parquet":
            value = _jsonable(name, value)
        if format == "csv" and value is not None:
            value = value if isinstance(value, str) else _compact(value)
        made[name] = value
    return made


def _jsonable(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    if isinstance(value, list) and name == "headers":
        return dict(value)
    if isinstance(value, list):
        return [_jsonable(name, each) for each in value]
    return value


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def same_json(rows: list[Row]) -> list[Row]:
    """Rows of CSV with the JSON in them read: one text of JSON may be written in two ways."""
    return [
        {
            name: json.loads(value) if name in NESTED and isinstance(value, str) else value
            for name, value in row.items()
        }
        for row in rows
    ]
