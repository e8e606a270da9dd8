"""An Iceberg table, written with pyiceberg. The position of a store is a property of the table, set
in the commit of the rows.

pyiceberg would try a lost commit again by itself, on top of the one that was first: two loops would
then double rows. So the table gets the property `commit.retry.num-retries` = 0, before anything is
committed through a handle. Each commit adds a snapshot, even one without rows: what is refused is a
commit whose snapshot does not follow the one that was seen, and of properties nothing would be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, WriteTask
from sqlalchemy.exc import OperationalError

from fmq.arguments.path import ADDRESS
from fmq.errors import BadOption
from fmq.lake.dataset_rows import stores_in
from fmq.lake.file_groups import SMALL_BYTES, grouped
from fmq.lake.lake_batch import LakeBatch
from fmq.lake.lake_errors import TableMoved, check_rows, no_table
from fmq.lake.table_part import TablePart
from fmq.lake.table_topics import TOPICS, check_topics, topics_in
from fmq.lake.urls import located_at, no_journal

POSITION = "fmq.position."
RETRIES = "commit.retry.num-retries"
CATALOG = "fmq"
"""The name of the catalog in a directory: a file of SQLite, `catalog.db`."""


class IcebergTable:
    """The table NAMESPACE.NAME of a catalog: `catalog://CATALOG/NAMESPACE.NAME` in one that
    pyiceberg is configured for, `DIR/NAMESPACE.NAME` in one that lies in the directory.
    """

    def __init__(
        self,
        url: str,
        schema: pa.Schema,
        options: Mapping[str, str],
        topics: str | None = None,
    ) -> None:
        self._topics = topics
        self._url, where, self._name = _named(url)
        self._schema = schema
        self._catalog = _catalog_at(where, options)
        self._handle: Table | None = None

    def positions(self, stores: Iterable[str]) -> dict[str, int]:
        try:
            handle = self._catalog.load_table(self._name)
        except NoSuchTableError:
            handle = self._made()
        if handle.properties.get(RETRIES) != "0":
            with handle.transaction() as change:
                change.set_properties({RETRIES: "0"})
            handle = self._catalog.load_table(self._name)
        names = [field.name for field in handle.schema().fields]
        check_rows(self._url, "Iceberg table", self._schema, names)
        check_topics(self._url, self._topics, handle.properties.get(TOPICS))
        self._handle = handle
        found = ((store, handle.properties.get(POSITION + store)) for store in stores)
        return {store: int(position) for store, position in found if position is not None}

    def _made(self) -> Table:
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        try:
            said = {RETRIES: "0"} | ({} if self._topics is None else {TOPICS: self._topics})
            return self._catalog.create_table(self._name, self._schema, properties=said)
        except TableAlreadyExistsError:
            return self._catalog.load_table(self._name)

    def append(self, batch: LakeBatch) -> None:
        assert self._handle is not None, "positions() was asked first"
        handle, self._handle = self._handle, None
        ends = {POSITION + part.store: str(part.end) for part in batch.ranges}
        try:
            with handle.transaction() as change:
                change.append(batch.reader())
                change.set_properties(ends)
        except CommitFailedException as error:
            raise TableMoved(self._url, error) from error

    def compact(self, least: int) -> int:
        """pyiceberg has no call for it. The files are replaced in a snapshot that has to follow the
        one in which they were found, so nothing that was added or deleted meanwhile is undone.
        """
        handle, self._handle = self._catalog.load_table(self._name), None
        if handle.properties.get(RETRIES) != "0" or not handle.spec().is_unpartitioned():
            return 0
        small = [task for task in handle.scan().plan_files() if _can_be_merged(task, handle)]
        if len(small) < max(2, least):
            return 0
        try:
            with handle.transaction() as change, change.update_snapshot().overwrite() as snapshot:
                for tasks in grouped(small, first=_first_in(handle), size=_size):
                    for made in _rewritten(tasks, handle):
                        snapshot.append_data_file(made)
                    for task in tasks:
                        snapshot.delete_data_file(task.file)
        except CommitFailedException:
            return 0
        return len(small)

    def close(self) -> None:
        self._catalog.close()


def _can_be_merged(task: FileScanTask, handle: Table) -> bool:
    file = task.file
    plain = not task.delete_files and file.spec_id == handle.metadata.default_spec_id
    return plain and _size(task) < SMALL_BYTES


def _size(task: FileScanTask) -> int:
    return task.file.file_size_in_bytes


def _first_in(handle: Table) -> Callable[[FileScanTask], int]:
    """Return what reads the first position of a file."""
    position = next(
        (each.field_id for each in handle.schema().fields if each.name == "position"), 0
    )
    return lambda task: int.from_bytes((task.file.lower_bounds or {}).get(position, b""), "little")


def _rewritten(tasks: Sequence[FileScanTask], handle: Table) -> Iterator[DataFile]:
    """Write the rows of some files into one, and yield it."""
    schema = handle.schema()
    batches = list(
        ArrowScan(handle.metadata, handle.io, schema, AlwaysTrue()).to_record_batches(tasks)
    )
    task = WriteTask(write_uuid=uuid4(), task_id=0, schema=schema, record_batches=batches)
    return write_file(handle.io, handle.metadata, iter([task]))


class IcebergRows:
    """The snapshot of a table that is the newest when it is opened."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        where, folder, name = _named(url)
        if not folder.startswith("catalog://") and not os.path.exists(f"{folder}/catalog.db"):
            raise no_table(where, "Iceberg table")
        self._catalog = _catalog_at(folder, options)
        try:
            self._table = self._catalog.load_table(name)
        except NoSuchTableError as error:
            self._catalog.close()
            raise no_table(where, "Iceberg table") from error

    @property
    def columns(self) -> Sequence[str]:
        return [field.name for field in self._table.schema().fields]

    @property
    def topics(self) -> frozenset[str] | None:
        return topics_in(self._table.properties.get(TOPICS))

    def position(self, store: str) -> int | None:
        position = self._table.properties.get(POSITION + store)
        return None if position is None else int(position)

    def count(self, part: TablePart | None = None) -> int:
        if part is None:
            return self._table.scan().count()
        return self._table.scan(row_filter=_is_in(part)).count()

    def stores(self) -> set[str]:
        return stores_in(self._table.scan(selected_fields=("store",)).to_arrow_batch_reader())

    def read(self, part: TablePart, columns: Sequence[str]) -> pa.Table:
        return self._table.scan(row_filter=_is_in(part), selected_fields=tuple(columns)).to_arrow()

    def close(self) -> None:
        self._catalog.close()


def _is_in(part: TablePart) -> str:
    wanted = [f"store == '{part.store}'"]
    if part.first is not None:
        wanted.append(f"position >= {part.first}")
    if part.end is not None:
        wanted.append(f"position < {part.end}")
    return " and ".join(wanted)


def _named(url: str) -> tuple[str, str, str]:
    """Return the address, that of the catalog in it, and the name of the table."""
    where = located_at(url, ["catalog"])
    folder, _, name = where.rpartition("/")
    if "." not in name.strip("."):
        raise BadOption(
            f"{url}: an Iceberg table has a namespace and a name, as in /lake/shop.messages or "
            "catalog://prod/shop.messages. Nothing was written."
        )
    if not ADDRESS.match(where):
        no_journal(os.path.join(folder, *name.split(".")))  # where the files of the table are
    return where, folder, name


def _catalog_at(where: str, options: Mapping[str, str]) -> Catalog:
    if where.startswith("catalog://"):
        return load_catalog(where.removeprefix("catalog://"), **options)
    os.makedirs(where, exist_ok=True)
    given = {"uri": f"sqlite:///{where}/catalog.db", "warehouse": f"file://{where}", **options}
    try:
        return SqlCatalog(CATALOG, **given)
    except OperationalError:
        return SqlCatalog(CATALOG, **given)  # another loop has made its tables at this moment
