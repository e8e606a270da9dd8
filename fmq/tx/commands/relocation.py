"""Relocation: writing an undecided transaction again at the end of the journal.

Without it, a transaction that is never decided would keep every segment since its PREPARE. The new
append names the PREPARE that it replaces. If a crash leaves it unfinished, recovery cuts it and the
old PREPARE counts.
"""

from __future__ import annotations

from fmq.store.bytes.content import copy_of
from fmq.store.bytes.kinds import PRE_MESSAGE, Marks, Prepare
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.ledger import Entry
from fmq.tx.looks.outcomes import Outcomes


def relocate_oldest(writer: Writer, outcomes: Outcomes, room: int) -> bool:
    """Relocate the oldest undecided transaction if it is too far back. Return whether it was
    relocated.

    `room` is twice what all undecided transactions together may take. It is added to the allowed
    distance, because each relocation pushes the others back. Without it, relocations could go on
    for ever.
    """
    journal, ledger = writer.journal, writer.ledger
    with writer.commit_queue.lock:
        entry = next(iter(ledger.undecided.values()), None)
        if entry is None:
            return False
        if entry.lost(ledger.damaged):
            return False  # what is damaged cannot be written again: the transaction stays there
        prepare, runs = entry.prepare, entry.runs
        behind = journal.position - prepare.position
    # A transaction in the segment being written keeps no other segment from being dropped.
    far = behind > writer.options.relocate_bytes + room
    if not far or prepare.position >= journal.current.base:
        return False
    writer.catch_up(prepare.position)
    read = [outcomes.whole(run.position) for run in runs]

    def plan(entry: Entry) -> bool:
        if entry.prepare is not prepare or ledger.undecided.get(entry.tx) is not entry:
            return False
        again = _again(prepare)
        copies = [copy_of(run, PRE_MESSAGE) for run in read]
        marks = [Marks(again.marks, 0, again.tx)] if again.marks else []
        writer.send([again, *copies, *marks], ordinary=False)
        for run, old in zip(copies, runs, strict=True):
            if old.bodies is None:  # keep the copy's bodies in memory only if the old run does
                run.bodies, run.columns, run.tail = None, b"", b""
        return True

    return writer.commit_queue.run(plan, entry, True)


def _again(old: Prepare) -> Prepare:
    new = Prepare(
        old.tx_id,
        old.producer,
        0,
        old.records,
        old.messages,
        old.bytes,
        old.seal,
        old.acks,
        tx=old.tx,
        prepared_us=old.prepared_us,
        replaces=old.position,
        check_after_ms=old.check_after_ms,
    )
    new.reserved, new.kept_bytes = old.reserved, old.kept_bytes
    new.bound, new.marks = old.bound, old.marks
    return new
