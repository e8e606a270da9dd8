"""The errors of a delivery, and the check that a table is one of its view."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from fmq.errors import StorageError, UsageError
from fmq.table.schema import VALUE


class TableMoved(StorageError):
    """Another writer has committed since the table was looked at, so this commit was refused.
    Nothing of it is in the table: look again.
    """

    def __init__(self, url: str, reason: object = "another commit was first") -> None:
        super().__init__(
            f"{url}: the table refused a commit: {reason}. Nothing of it is in the table; its "
            "position has to be read again."
        )
        self.url = url


class OtherTable(UsageError):
    """The table is not one to which these rows can be added."""


def check_columns(where: str, table: str, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise OtherTable if what is at `where` lacks a column. `table` is what an error calls it."""
    if missing := [name for name in wanted if name not in known]:
        raise OtherTable(
            f"{where}: this {table} has no column {', '.join(missing)}, so it is not one of this "
            "view. Nothing was written; name another one, or the columns that it has."
        )


def check_rows(where: str, table: str, schema: pa.Schema, known: Collection[str]) -> None:
    """Raise OtherTable if rows of `schema` cannot be added: what is at `where` lacks a column, or
    has the values of bodies, which they lack.
    """
    check_columns(where, table, schema.names, known)
    if VALUE in known and VALUE not in schema.names:
        raise OtherTable(
            f"{where}: this {table} has the column {VALUE}, made of bodies by a codec, and new "
            "rows would lack it. Nothing was written; give the codec, as before (--codec)."
        )


def no_table(where: str, table: str) -> OtherTable:
    """Return the error that nothing is at `where`."""
    return OtherTable(
        f"{where}: there is no {table}, so nothing was read. `fmq deliver` makes one; its address "
        "and format have to be given here as there."
    )
