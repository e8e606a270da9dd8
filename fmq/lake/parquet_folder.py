"""A folder of Parquet files: one for each part of a journal, named by its store and by the position
up to which the folder had the journal before.

The file says in its footer where the part ends, which is the name of the next one. A file appears
under its name at once, whole and durable, and only if there is none: of two loops that would go on
from one position, one is refused. So a folder has each row once without any other file.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as parquet

from fmq.lake.dataset_rows import DatasetRows
from fmq.lake.lake_batch import LakeBatch
from fmq.lake.lake_errors import TableMoved, check_rows, no_table
from fmq.lake.table_topics import TOPICS, check_topics, topics_in
from fmq.lake.urls import located_at
from fmq.table.read_range import ReadRange

FILE = re.compile(r"([0-9a-f]{32})-([0-9]{20})\.parquet")
WRITING = re.compile(r"\.([0-9a-f]{32})-([0-9]{20})\.[0-9a-f]+\.writing")
"""A file that is not whole yet. The dot hides it from those who read the folder."""
END = b"fmq.end"


class ParquetFolder:
    """The folder at a path of this machine."""

    def __init__(self, url: str, schema: pa.Schema, topics: str | None = None) -> None:
        self._topics = topics
        self._path = located_at(url, ())
        self._schema = schema
        self._seen: dict[str, int] = {}

    def positions(self, stores: Iterable[str]) -> dict[str, int]:
        os.makedirs(self._path, exist_ok=True)
        newest = _newest(self._names())
        there = [store for store in stores if store in newest]
        self._seen = {store: self._end_of(store, newest[store]) for store in there}
        return dict(self._seen)

    def _names(self) -> list[str]:
        return os.listdir(self._path)

    def _end_of(self, store: str, place: int) -> int:
        path = self._file(store, place)
        footer = parquet.read_schema(path)
        check_rows(path, "file", self._schema, footer.names)
        check_topics(path, self._topics, _topics_of(footer))
        return int(footer.metadata[END])

    def _file(self, store: str, place: int) -> str:
        return os.path.join(self._path, f"{store}-{place:020d}.parquet")

    def append(self, batch: LakeBatch) -> None:
        for part in batch.ranges:
            self._write(batch, part)

    def _write(self, batch: LakeBatch, part: ReadRange) -> None:
        place = self._seen.get(part.store, 0)
        made = f".{part.store}-{place:020d}.{secrets.token_hex(8)}.writing"
        made = os.path.join(self._path, made)
        said: dict[str | bytes, str] = {END: str(part.end)}
        if self._topics is not None:
            said[TOPICS] = self._topics
        schema = self._schema.with_metadata(said)
        try:
            with parquet.ParquetWriter(made, schema) as writer:
                for rows in batch.reader(part):
                    writer.write_batch(rows)
            try:
                _sync(made)
                os.link(made, self._file(part.store, place))
            # If the new file is gone, another loop has published this part and cleared up.
            except (FileExistsError, FileNotFoundError) as error:
                raise TableMoved(self._path, "another loop has written this part") from error
        finally:
            with suppress(FileNotFoundError):
                os.unlink(made)
        _sync(self._path)
        self._clear(part.store, place)

    def _clear(self, store: str, place: int) -> None:
        """Remove the files that killed loops have left of this part and of earlier parts. No loop
        can publish them any more.
        """
        for name in self._names():
            left = WRITING.fullmatch(name)
            if left and left[1] == store and int(left[2]) <= place:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._path, name))

    def close(self) -> None:
        """Do nothing, because nothing is open between two calls."""


class ParquetRows(DatasetRows):
    """The files that are in a folder when it is opened, also those that no delivery has made."""

    def __init__(self, url: str) -> None:
        path = located_at(url, ())
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
        files = [name for name in names if name.endswith(".parquet") and not name.startswith(".")]
        if not files:
            raise no_table(path, "folder of Parquet files")
        self._path = path
        self._newest = _newest(files)
        super().__init__(
            dataset.dataset([os.path.join(path, name) for name in files], format="parquet")
        )

    def position(self, store: str) -> int | None:
        return int(self._footer(store).metadata[END]) if store in self._newest else None

    @property
    def topics(self) -> frozenset[str] | None:
        store = next(iter(self._newest), None)
        return None if store is None else topics_in(_topics_of(self._footer(store)))

    def _footer(self, store: str) -> pa.Schema:
        name = f"{store}-{self._newest[store]:020d}.parquet"
        return parquet.read_schema(os.path.join(self._path, name))


def _topics_of(footer: pa.Schema) -> str | None:
    said = footer.metadata.get(TOPICS.encode())
    return None if said is None else said.decode()


def _newest(names: Iterable[str]) -> dict[str, int]:
    """Return the place of the newest file of each store."""
    newest: dict[str, int] = {}
    for found in filter(None, map(FILE.fullmatch, names)):
        newest[found[1]] = max(int(found[2]), newest.get(found[1], 0))
    return newest


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
