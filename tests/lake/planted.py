"""Tables with the bugs that a delivery could have, to see that tests find them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from fmq.lake import LakeBatch, LakeTable, TableMoved, table_at
from fmq.lake.lake_delivery import schema_for

BUGS = {
    "delta": ("apart", "first", "path", "remembered"),
    "iceberg": ("apart", "first", "retries"),
    "parquet": ("overwrites",),
}


def nothing() -> None:
    """Stand for what happens between the two halves of a commit."""


def planted(url: str, to: str, bug: str | None, between: Callable[[], None] = nothing) -> LakeTable:
    """Return the table at `url`, with `bug` or without. `between` is called where the bug makes two
    commits of one: `apart` puts the position into the second, `first` into the first.
    """
    schema = schema_for("messages")
    if bug is None:
        return table_at(url, to, schema)
    made = {"delta": _delta, "iceberg": _iceberg, "parquet": _parquet}[to](bug, between)
    return made(url, schema, *([] if to == "parquet" else [{}]))  # type: ignore[no-any-return]


def in_two(bug: str, steps: list[Callable[[], None]], between: Callable[[], None]) -> None:
    """Run the steps `rows` and `position` in the order of the bug."""
    first, second = steps if bug == "apart" else reversed(steps)
    first()
    between()
    second()


def _delta(bug: str, between: Callable[[], None]) -> Any:
    from deltalake import CommitProperties, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError

    from fmq.lake.delta_table import DeltaLakeTable

    def write(table: Any, rows: Any, batch: LakeBatch, *, place: bool) -> None:
        transactions = [Transaction(f"fmq/{part.store}", part.end) for part in batch.ranges]
        how = CommitProperties(app_transactions=transactions if place else [])
        try:
            write_deltalake(table, rows, mode="append", commit_properties=how)
        except CommitFailedError as error:
            raise TableMoved("lake", error) from error

    class Planted(DeltaLakeTable):
        known: dict[str, int] | None = None

        def positions(self, stores: Iterable[str]) -> dict[str, int]:
            found = super().positions(stores)
            return self.known or found

        def append(self, batch: LakeBatch) -> None:
            rows = batch.reader()
            if bug == "path":
                write(self._url, rows, batch, place=True)
            elif bug == "remembered":
                # The position of this loop's own last commit, with the newest handle.
                write(self._handle, rows, batch, place=True)
                self.known = {part.store: part.end for part in batch.ranges}
            else:
                none = rows.schema.empty_table()
                steps: list[Callable[[], None]] = [
                    lambda: write(self._url, rows, batch, place=False),
                    lambda: write(self._url, none, batch, place=True),
                ]
                in_two(bug, steps, between)

    return Planted


def _iceberg(bug: str, between: Callable[[], None]) -> Any:
    from fmq.lake.iceberg_table import POSITION, RETRIES, IcebergTable

    class Planted(IcebergTable):
        def positions(self, stores: Iterable[str]) -> dict[str, int]:
            found = super().positions(stores)
            if bug == "retries":
                self._set({RETRIES: "4"})
                self._handle = self._catalog.load_table(self._name)
            return found

        def _set(self, properties: dict[str, str]) -> None:
            with self._catalog.load_table(self._name).transaction() as change:
                change.set_properties(properties)

        def append(self, batch: LakeBatch) -> None:
            if bug == "retries":
                super().append(batch)
                return
            ends = {POSITION + part.store: str(part.end) for part in batch.ranges}
            steps: list[Callable[[], None]] = [
                lambda: self._catalog.load_table(self._name).append(batch.reader()),
                lambda: self._set(ends),
            ]
            in_two(bug, steps, between)

    return Planted


def _parquet(bug: str, between: Callable[[], None]) -> Any:
    from fmq.lake.parquet_folder import ParquetFolder

    class Planted(ParquetFolder):
        """It takes its own name away from the file of another loop, which may end elsewhere."""

        def append(self, batch: LakeBatch) -> None:
            for part in batch.ranges:
                with suppress(FileNotFoundError):
                    os.unlink(self._file(part.store, self._seen.get(part.store, 0)))
            super().append(batch)

    return Planted
