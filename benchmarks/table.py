"""All rows, in the order of the table, and how rows are named on the command line."""

from __future__ import annotations

from benchmarks import (
    consume,
    disk_size,
    gil,
    import_time,
    memory,
    read,
    reopen,
    send,
    send_many,
    transaction,
    wakeup,
)
from benchmarks.row import Row

FAMILIES = (
    *(send, send_many, transaction, consume, wakeup, read),
    *(reopen, disk_size, memory, gil, import_time),
)
ROWS = {row.name: row for family in FAMILIES for row in family.ROWS}


def chosen(names: list[str]) -> list[Row]:
    """The rows that `names` say, by name or by its first words (`send`, `tx-two-phase`).

    All rows if there are no names; raises KeyError with a name that says none.
    """
    for name in names:
        if not any(_says(name, row) for row in ROWS.values()):
            raise KeyError(name)
    return [row for row in ROWS.values() if not names or any(_says(name, row) for name in names)]


def _says(name: str, row: Row) -> bool:
    return row.name == name or row.name.startswith(f"{name}-")
