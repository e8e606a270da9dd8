"""A snapshot of an engine, for operators and for monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fmq.basics.clock import as_datetime
from fmq.basics.counts import Counts
from fmq.basics.results import HomeStats
from fmq.chores.runner import Chores
from fmq.recovery.recover import RecoveryReport
from fmq.store.journal.commit_queue import CommitQueue
from fmq.store.journal.journal import Journal
from fmq.tx.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Kept:
    """The oldest segment if it is over the limits of retention, and the reason why it is kept."""

    segment: int
    by: str


@dataclass(frozen=True, slots=True)
class Stats:
    """What an engine knows about itself at one instant. Positions are bytes in the journal."""

    path: str
    first_position: int
    position: int
    """Where the next append goes."""
    durable_to: int
    applied_upto: int
    segments: int
    topics: int
    queues: int
    messages: int
    """Visible ones that retention has not dropped. Others may publish during the count."""
    groups: int
    dead_letters: int
    """Of all groups."""
    replayed: int
    """Dead letters that were replayed and are not acked."""
    undecided: int
    undecided_bytes: int
    oldest_undecided: str | None
    delayed: int
    """Messages that wait for their time."""
    next_due: datetime | None
    """When the first of them is due."""
    syncs: int
    checkpoints: int
    checkpointed_upto: int
    spares: int
    spares_reserved: int
    kept: Kept | None
    """The segment that retention would drop next, and what keeps it."""
    kept_by: tuple[str, ...]
    """All that keeps it, at most 100 of each kind. `kept.by` is what retention has met first."""
    free_bytes: int | None
    """How much more the file system would store. None if it does not say."""
    trouble: str | None
    """What a chore could not do and will try again, such as for want of room; or the error of a
    database that does not answer questions about transactions."""
    failure: str | None
    """Why the engine takes nothing any more."""
    recovery: RecoveryReport
    """What opening found and did."""
    counts: Counts | None = None
    """What was counted since the engine was opened. None for a reader of the files."""
    home: HomeStats | None = None
    """None for an engine without a home."""

    @classmethod
    def of(
        cls,
        path: str,
        journal: Journal,
        ledger: Ledger,
        commit_queue: CommitQueue,
        chores: Chores,
        report: RecoveryReport,
        queues: int,
        messages: int,
        counts: Counts,
        kept_by: tuple[str, ...],
        free_bytes: int | None,
    ) -> Stats:
        """Take the snapshot. The caller holds the engine's lock, and has counted `queues` and
        `messages` before.
        """
        # A transaction whose PREPARE is not durable yet does not count.
        undecided = [each for each in ledger.undecided.values() if each.tx < ledger.shown_to]
        next_due_us = ledger.timers.next_due_us()
        return cls(
            path=path,
            first_position=journal.segments[0].base,
            position=journal.position,
            durable_to=journal.durable_to,
            applied_upto=ledger.shown_to,
            segments=len(journal.segments),
            topics=len(ledger.own_topics()),
            queues=queues,
            messages=messages,
            groups=len({group for group, _ in ledger.subscriptions}),
            dead_letters=sum(map(ledger.dead_letters_of, ledger.dead)),
            replayed=ledger.replayed(),
            undecided=len(undecided),
            undecided_bytes=sum(each.prepare.bytes for each in undecided),
            oldest_undecided=undecided[0].prepare.tx_id if undecided else None,
            delayed=ledger.timers.messages,
            next_due=None if next_due_us is None else as_datetime(next_due_us),
            syncs=commit_queue.syncs,
            checkpoints=chores.checkpointer.taken,
            checkpointed_upto=max(chores.checkpointer.upto, 0),
            spares=journal.spares.count(),
            spares_reserved=journal.spares.needed,
            kept=Kept(*chores.retention.kept) if chores.retention.kept else None,
            kept_by=kept_by,
            free_bytes=free_bytes,
            trouble=chores.trouble or journal.spares.failed,
            failure=str(commit_queue.failure) if commit_queue.failure is not None else None,
            recovery=report,
            counts=counts,
        )
