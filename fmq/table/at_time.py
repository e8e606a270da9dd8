"""Finds where in a journal a time begins."""

from __future__ import annotations

from fmq.table.read import read_split
from fmq.table.schema import schema_of
from fmq.table.selection import RowRange, Selection
from fmq.table.snapshot import Snapshot
from fmq.table.stream import append_at


def position_at(journal: Snapshot, time_us: int, *, permissive: bool = False) -> int:
    """Return where the append begins that has the first message of this time or later; the end of
    the journal if there is none. One segment is read, and of it only heads.
    """
    wanted = Selection(time_us=RowRange(time_us))
    schema = schema_of("messages", ["position"], fleet=False)
    for split in journal.splits(wanted):
        for batch in read_split(split, "messages", schema, wanted, permissive=permissive):
            return append_at(journal, batch.column(0)[0].as_py())
    return journal.visible_to
