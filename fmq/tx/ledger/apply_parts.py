"""Smaller forms of `apply`, for a replay that has the rest from a checkpoint or an index."""

from __future__ import annotations

from collections.abc import Sequence

from fmq.store.bytes.kinds import (
    COMMIT,
    PRE_MESSAGE,
    TIMER,
    Changed,
    ChangeKind,
    Decided,
    IdsKept,
    Kind,
    Marks,
    Prepare,
    Record,
    Run,
)
from fmq.store.bytes.record import aligned
from fmq.store.index.index import SegmentIndex
from fmq.tx.ledger.changes import CHANGES
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.transitions import forget, prepare_applied


def collect(ledger: Ledger, append: Sequence[Record]) -> None:
    """Apply what may still be undecided. The checkpoint has everything else of `append`."""
    prepare: Prepare | None = None
    runs: list[Run] = []
    for record in append:
        if isinstance(record, Prepare):
            prepare = record
        elif isinstance(record, Run):
            if record.kind == PRE_MESSAGE:
                runs.append(record)
        elif isinstance(record, Marks):
            if prepare is not None:
                prepare.marks = record.changes
        elif isinstance(record, Decided):
            entry = ledger.undecided.get(record.tx)
            if entry is not None:
                forget(ledger, entry)
            prepare = None
    if prepare is not None:
        prepare_applied(ledger, prepare, runs, append[0].position)


def apply_to_timers(ledger: Ledger, append: Sequence[Record]) -> None:
    """Apply the timers of `append`. The checkpoint has everything else of it."""
    is_committed = append[-1].kind == COMMIT
    for record in append:
        if isinstance(record, Run):
            if record.kind == TIMER and (is_committed or not record.tx):
                ledger.timers.add(record)
        elif isinstance(record, Changed) and record.asked in (ChangeKind.FIRE, ChangeKind.RECALL):
            CHANGES[record.asked](ledger, record)


def apply_to_index(index: SegmentIndex, append: Sequence[Record]) -> None:
    """Apply to `index` what `append` says about its segment.

    This is for an append that the ledger has already. `apply` also changes the index.
    """
    published: list[Run] = []
    for record in append:
        if isinstance(record, Run):
            if record.kind == Kind.MESSAGE:
                index.add(record)
            elif record.kind == TIMER and not record.tx:
                index.ids.add_run(record)
            elif record.kind != PRE_MESSAGE:
                published.append(record)
        elif isinstance(record, Changed):
            if record.asked == ChangeKind.DELETE_TOPIC:
                index.forget(record.topic)
        elif isinstance(record, IdsKept):
            index.ids.extend(record.table)
        elif isinstance(record, Decided):
            if record.kind == COMMIT:
                for run in published:
                    if run.kind == TIMER:
                        index.ids.add_run(run)
                    else:
                        index.add(run)
            index.add_outcome(record)
    last = append[-1]
    index.end = last.position + aligned(last.size)
