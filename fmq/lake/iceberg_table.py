"""An Iceberg table, written with pyiceberg. The position of a store is a property of the table, set
in the commit of the rows.

pyiceberg would try a lost commit again by itself, on top of the one that was first: two loops would
then double rows. So the table gets the property `commit.retry.num-retries` = 0, before anything is
committed through a handle. Each commit adds a snapshot, even one without rows: what is refused is a
commit whose snapshot does not follow the one that was seen, and of properties nothing would be.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from fmq.errors import BadOption
from fmq.lake.lake_batch import LakeBatch
from fmq.lake.lake_errors import TableMoved, check_columns, no_table
from fmq.lake.table_part import TablePart
from fmq.lake.urls import located_at

POSITION = "fmq.position."
RETRIES = "commit.retry.num-retries"
CATALOG = "fmq"
"""The name of the catalog in a directory: a file of SQLite, `catalog.db`."""


class IcebergTable:
    """The table NAMESPACE.NAME of a catalog: `catalog://CATALOG/NAMESPACE.NAME` in one that
    pyiceberg is configured for, `DIR/NAMESPACE.NAME` in one that lies in the directory.
    """

    def __init__(self, url: str, schema: pa.Schema, options: Mapping[str, str]) -> None:
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
        check_columns(self._url, "Iceberg table", self._schema.names, names)
        self._handle = handle
        found = ((store, handle.properties.get(POSITION + store)) for store in stores)
        return {store: int(position) for store, position in found if position is not None}

    def _made(self) -> Table:
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        try:
            return self._catalog.create_table(self._name, self._schema, properties={RETRIES: "0"})
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

    def close(self) -> None:
        self._catalog.close()


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

    def position(self, store: str) -> int | None:
        position = self._table.properties.get(POSITION + store)
        return None if position is None else int(position)

    def count(self, part: TablePart | None = None) -> int:
        if part is None:
            return self._table.scan().count()
        return self._table.scan(row_filter=_is_in(part)).count()

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
