"""Finds an end for a part of a journal that splits no joint decision.

The endings of a joint decision are appends of their own, and may lie in several segments. Readers
see all of them or none, so a batch has all of them or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from fmq.errors import Damaged, NewerFormat
from fmq.machine.disk import Disk
from fmq.store.bytes.joint_column import joint_in
from fmq.store.bytes.kinds import Decided, Record
from fmq.store.journal.scan import end_of
from fmq.table.selection import EVERYTHING
from fmq.table.snapshot import Snapshot
from fmq.table.split import opened
from fmq.table.table_errors import located


def whole_end(journal: Snapshot, start: int, end: int, stop: int, disk: Disk | None) -> int:
    """Return `end`, at which an append begins, or, if that is an ending of a joint decision and not
    its first, where the decision begins; where it ends, if it begins at `start` or before.
    """
    if start < end < stop:
        # Whoever reads what lies behind `end` finds its damage.
        with suppress(Damaged, NewerFormat):
            for append in _appends(journal, end, stop, disk):
                decided = append[-1]
                joint = joint_in(decided.extension) if isinstance(decided, Decided) else None
                if joint is None or joint.joint >= end:
                    break
                if joint.joint > start:
                    return joint.joint
                end = end_of(append)
    return end


def _appends(journal: Snapshot, start: int, stop: int, disk: Disk | None) -> Iterator[list[Record]]:
    for split in journal.splits(EVERYTHING, start=start, end=stop, lanes=False, disk=disk):
        with located(split.path), opened(split, disk) as source:
            yield from source.appends()
