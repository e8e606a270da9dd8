"""Finds the undecided transactions of a journal where no checkpoint names them."""

from __future__ import annotations

from fmq.errors import Damaged, NewerFormat, Unreadable
from fmq.machine.disk import Disk
from fmq.store.journal.segment import HEADER_BYTES
from fmq.table.extents import Extent
from fmq.table.snapshot import Snapshot, Undecided, undecided_in
from fmq.table.split import Split, opened
from fmq.table.table_errors import located
from fmq.tx.ledger.apply_parts import collect
from fmq.tx.ledger.ledger import Ledger


def undecided_of(
    journal: Snapshot, *, permissive: bool = False, disk: Disk | None = None
) -> tuple[Undecided, ...]:
    """Return the transactions that are undecided at the end of `journal`.

    If the journal was seen without them, all of it is read. Where something is left out, a decision
    may be missing. Then only transactions that were prepared after it are known.
    """
    if journal.undecided is not None:
        return journal.undecided
    ledger = Ledger(journal.first)
    # A decision may have been in a missing segment, or in the missing end of one.
    holes = sorted(part.position for part in journal.left_out)
    for seen in journal.segments:
        if holes and holes[0] <= seen.segment.base:
            holes = [hole for hole in holes if hole > seen.segment.base]
            ledger = Ledger(seen.segment.base)
        try:
            _collect(ledger, journal, seen, disk)
        except (Damaged, NewerFormat, Unreadable):
            if not permissive:
                raise
            ledger = Ledger(seen.end)
    if holes:
        return ()
    return undecided_in(ledger)


def _collect(ledger: Ledger, journal: Snapshot, seen: Extent, disk: Disk | None) -> None:
    base = seen.segment.base
    whole = Split(seen.path, journal.store, base, base + HEADER_BYTES, seen.end, 0)
    with located(seen.path), opened(whole, disk) as source:
        for append in source.appends():
            collect(ledger, append)
