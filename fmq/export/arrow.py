"""Making the files of a chunk with Arrow alone: no Spark, no Java, one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fmq.export.destination import PART
from fmq.export.layout import FolderLayout
from fmq.export.plan import size_of
from fmq.export.shape import Shape, as_json, plain_values
from fmq.table.read import read_split
from fmq.table.split import Split

# How many bytes of rows are gathered in memory before they are written, so that a file has few
# pieces.
HELD_BYTES = 128 << 20
OPEN_MAX = 256  # how many files are open at the same time
Told = Callable[[int, int], None]
"""Is told rows and bytes of the journal that were read since it was told last."""


class FileWriter(Protocol):
    """A file that is being written."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class ArrowEngine:
    """Writes an export's files with pyarrow, in the calling thread."""

    name = "arrow"

    def __init__(self, shape: Shape, layout: FolderLayout, *, permissive: bool) -> None:
        self._shape = shape
        self._layout = layout
        self._permissive = permissive

    def make(self, splits: Sequence[Split], staging: str, told: Told) -> None:
        """Write the rows of `splits` to files in the folders `part=...` of `staging`."""
        parts = PartFiles(staging, self._shape)
        fill(parts, splits, self._shape, self._layout, told, permissive=self._permissive)


def fill(
    parts: PartFiles,
    splits: Iterable[Split],
    shape: Shape,
    layout: FolderLayout,
    told: Told,
    *,
    permissive: bool,
) -> None:
    """Read the rows of `splits`, and write each to the file of its part."""
    for split in splits:
        for batch in read_split(split, shape.view, shape.source, permissive=permissive):
            names, numbers = layout.parts_of(batch)
            parts.add(shape.shaped(batch), names, numbers)
            told(batch.num_rows, 0)
        told(0, size_of(split))
    parts.close()


class PartFiles:
    """Collects rows and writes them to a file for each part. File names begin with `prefix`."""

    def __init__(self, staging: str, shape: Shape, prefix: str = "") -> None:
        self._staging = staging
        self._shape = shape
        self._prefix = prefix
        self.files: list[str] = []
        """Those that were begun, by their names in `staging`."""
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._open: dict[str, FileWriter] = {}
        self._numbers: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch, parts: list[str], numbers: Any) -> None:
        """Add rows. `numbers` holds the index in `parts` of each row's part."""
        if len(parts) > 1:
            batch = batch.take(pa.array(np.argsort(numbers, kind="stable")))
        start = 0
        for part, count in zip(parts, np.bincount(numbers).tolist(), strict=True):
            self._held.setdefault(part, []).append(batch.slice(start, count))
            start += count
        self._held_bytes += batch.nbytes
        if self._held_bytes >= HELD_BYTES:
            self._write()

    def _write(self) -> None:
        for part, batches in self._held.items():
            self._writer(part).write(pa.concat_batches(batches))
        self._held.clear()
        self._held_bytes = 0

    def _writer(self, part: str) -> FileWriter:
        if part not in self._open:
            if len(self._open) == OPEN_MAX:
                self._close_files()
            number = self._numbers[part] = self._numbers.get(part, -1) + 1
            folder = f"{PART}={part}"
            file = f"{folder}/{self._prefix}{number:05d}.{self._shape.format}"
            self.files.append(file)
            os.makedirs(os.path.join(self._staging, folder), exist_ok=True)
            path = os.path.join(self._staging, file)
            self._open[part] = WRITERS[self._shape.format](path, self._shape.schema)
        return self._open[part]

    def close(self) -> None:
        """Write what is still in memory, and close all files."""
        self._write()
        self._close_files()

    def _close_files(self) -> None:
        for writer in self._open.values():
            writer.close()
        self._open.clear()


class JsonLines:
    """Writes JSON: one line for each row."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115
        self._names = schema.names

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [plain_values(column) for column in batch.columns]
        for values in zip(*columns, strict=True):
            self._file.write(as_json(dict(zip(self._names, values, strict=True))) + "\n")

    def close(self) -> None:
        self._file.close()


class Parquet:
    """Writes Parquet: one row group for each batch."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._writer = pyarrow.parquet.ParquetWriter(path, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


WRITERS: dict[str, Callable[[str, pa.Schema], FileWriter]] = {
    "parquet": Parquet,
    "csv": pyarrow.csv.CSVWriter,
    "json": JsonLines,
}
