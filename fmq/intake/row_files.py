"""Files of rows: which of them are read, and as what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from fmq.intake.intake_errors import BadRows
from fmq.intake.row_columns import ROWS_AT_ONCE

PARQUET, ARROW = ".parquet", ".arrow"


class RowFile:
    """A file of Parquet or of Arrow."""

    def __init__(self, path: str, columns: Sequence[str] | None = None) -> None:
        """Only read the schema. Raises OSError, or BadRows for another file, or without one of
        `columns`.
        """
        if not path.endswith((PARQUET, ARROW)):
            raise BadRows(
                f"{path}: its name has to end in {PARQUET} or {ARROW}, or for `fmq import` .jsonl."
            )
        self._path = path
        with ExitStack() as opened:
            whole = self._open(opened)[0]
        self._columns = whole.names if columns is None else [*columns]
        if missing := [name for name in self._columns if name not in whole.names]:
            raise BadRows(f"{path} has no column {', '.join(missing)}.")
        self.schema = pa.schema([whole.field(name) for name in self._columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, some at once."""
        with ExitStack() as opened:
            for batch in self._open(opened)[1]:
                yield batch.select(self._columns)

    def _open(self, opened: ExitStack) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema, and all rows."""
        try:
            if self._path.endswith(ARROW):
                return in_arrow(opened.enter_context(pa.OSFile(self._path)))
            from pyarrow.parquet import ParquetFile

            file = opened.enter_context(ParquetFile(self._path))
        except pa.ArrowInvalid as error:
            raise BadRows(f"{self._path}: {error}.") from None
        return file.schema_arrow, file.iter_batches(ROWS_AT_ONCE)


def in_arrow(source: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the rows. A file of Arrow lists its batches at its end; a stream has
    them one by one.
    """
    if source.read(6) != b"ARROW1":
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, iter(stream)
    file = pa.ipc.open_file(source)
    return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))
