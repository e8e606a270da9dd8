"""Tables of each format, read with their own libraries, and deliveries that are disturbed."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

import fmq.table
from fmq.lake import LakeBatch, LakeDelivery, LakeTable
from fmq.lake.lake_delivery import schema_for
from tests.lake.planted import planted

FORMATS = ("delta", "iceberg", "parquet")
UNIQUE = ("store", "topic", "queue", "offset")


def url_of(folder: Path, to: str) -> str:
    return str(folder / ("lake/shop.messages" if to == "iceberg" else "lake"))


def content(url: str, to: str, options: dict[str, str] | None = None) -> pa.Table:
    """Return all rows of a table, as any reader of the format sees them."""
    if to == "delta":
        from deltalake import DeltaTable

        return DeltaTable(url, storage_options=options).to_pyarrow_table()
    if to == "iceberg":
        with iceberg(url) as table:
            return table.scan().to_arrow()
    files = sorted(glob.glob(f"{url}/*.parquet"))
    return pa.concat_tables([pyarrow.parquet.read_table(file) for file in files])


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows in an order of their own, with headers as dicts."""
    found = table.to_pylist()
    for row in found:
        if row["headers"] is not None:
            row["headers"] = dict(row["headers"])
    return sorted(found, key=lambda row: [row[name] for name in UNIQUE])


def differences(
    paths: Any, url: str, to: str, options: dict[str, str] | None = None
) -> dict[str, int]:
    """Count rows of the journals that the table lacks, and those that it has once too often."""
    got = as_rows(content(url, to, options))
    several = [paths] if isinstance(paths, (str, Path)) else list(paths)
    columns = schema_for("messages").names
    wanted = as_rows(fmq.table.read([*map(str, several)], columns=columns).read_all())
    keys = [tuple(row[name] for name in UNIQUE) for row in got]
    known = {tuple(row[name] for name in UNIQUE): row for row in wanted}
    return {
        "lost": len(known.keys() - {*keys}),
        "doubled": len(keys) - len({*keys}),
        "wrong": sum(known.get(key) != row for key, row in zip(keys, got, strict=True)),
    }


EXACT = {"lost": 0, "doubled": 0, "wrong": 0}


class MeddledTable:
    """A table in which `meddle` does something after each look of a delivery, before it appends."""

    def __init__(self, table: LakeTable, meddle: Callable[[], None]) -> None:
        self.table = table
        self.meddle = meddle

    def positions(self, stores: Iterable[str]) -> dict[str, int]:
        return self.table.positions(stores)

    def append(self, batch: LakeBatch) -> None:
        self.meddle()
        self.table.append(batch)

    def close(self) -> None:
        self.table.close()


def deliver_meddled(
    path: Any, url: str, to: str, meddle: Callable[[], None], bug: str | None = None, **how: Any
) -> LakeDelivery:
    """Deliver all that is there, and call `meddle` before each commit."""
    with closing(MeddledTable(planted(url, to, bug), meddle)) as table:
        delivery = LakeDelivery(str(path), table, **how)
        delivery.run(once=True)
    return delivery


# --- faults in a table --------------------------------------------------------------------------


def rewrite(url: str, to: str, change: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Put `change` of its rows in the place of the rows of a table. Its position stays."""
    rows = change(content(url, to))
    if to == "delta":
        from deltalake import write_deltalake

        write_deltalake(url, rows, mode="overwrite")
    elif to == "iceberg":
        with iceberg(url) as table:
            table.overwrite(rows)
    else:
        first, *others = sorted(glob.glob(f"{url}/*.parquet"))
        for file, left in ((first, rows), *((other, rows.slice(0, 0)) for other in others)):
            footer = pyarrow.parquet.read_schema(file).metadata
            pyarrow.parquet.write_table(left.replace_schema_metadata(footer), file)
    return rows


def move_position(url: str, to: str, store: str, position: int) -> None:
    """Let a table say that it has the journal of `store` up to `position`."""
    if to == "delta":
        from deltalake import CommitProperties, Transaction, write_deltalake

        how = CommitProperties(app_transactions=[Transaction(f"fmq/{store}", position)])
        nothing = content(url, to).slice(0, 0)
        write_deltalake(url, nothing, mode="append", commit_properties=how)
    elif to == "iceberg":
        with iceberg(url) as table, table.transaction() as step:
            step.set_properties({f"fmq.position.{store}": str(position)})
    else:
        newest = max(glob.glob(f"{url}/{store}-*.parquet"))
        rows = pyarrow.parquet.read_table(newest)
        rows = rows.replace_schema_metadata({b"fmq.end": str(position)})
        pyarrow.parquet.write_table(rows, newest)


@contextmanager
def iceberg(url: str) -> Iterator[Any]:
    """Open a table as its own library does."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.catalog.sql import SqlCatalog

    where, _, name = url.rpartition("/")
    if where.startswith("catalog://"):
        with closing(load_catalog(where.removeprefix("catalog://"))) as catalog:
            yield catalog.load_table(name)
        return
    with closing(SqlCatalog("fmq", uri=f"sqlite:///{where}/catalog.db")) as catalog:
        yield catalog.load_table(name)
