"""A second ledger beside a running engine. It reads only the bytes that the engine wrote.

What ran is what replays: each append is decoded from its bytes, applied to the shadow, and what it
touched is compared with what the engine remembers. So a transition that depends on something that
is not in the record, or an encoder that leaves something out, is found by any test that runs
beside a shadow.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from fmq.recovery.noted_attempts import NotedAttempts
from fmq.store.bytes.decoding import decode
from fmq.store.bytes.kinds import Acks, Decided, Prepare, Record, Run, Tried
from fmq.store.bytes.record import LAST, aligned
from fmq.store.journal.attempt_page import entries_of
from fmq.store.journal.journal_write import JournalWrite
from fmq.store.journal.scan import end_of
from fmq.testing.inside import inside
from fmq.tx.ledger.apply import apply
from fmq.tx.ledger.carryover import carried_of, carry
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.transitions import prepare_applied, show

if TYPE_CHECKING:
    from fmq.engines.engine import Engine


class Shadow:
    """The second ledger of one engine, from the moment the engine is made."""

    def __init__(self, engine: Engine) -> None:
        parts = inside(engine)
        self._seed = parts.journal.seed
        self._commit_queue = parts.commit_queue
        with parts.lock:
            self._theirs = parts.ledger
            self._ledger = copy_of(parts.ledger)
            self._attempts = parts.writer.attempts
            self._seen = set(entries_of(self._attempts._words, self._seed))
            self._show, parts.commit_queue._show = parts.commit_queue._show, self._shown
            self._wrote = parts.journal.wrote
            parts.journal.wrote = self._note  # type: ignore[method-assign]

    def _note(self, taken: JournalWrite, *, is_durable: bool) -> None:
        """Note which write is shown next: several may be on their way."""
        self._written = taken
        self._wrote(taken, is_durable=is_durable)

    def _shown(self, upto: int) -> None:
        """Apply what was written, once the engine has shown it. Raises AssertionError if the
        engine's ledger says something else.
        """
        self._show(upto)
        write = self._written
        written = [(roll.segment.base, roll.start, roll.buffers) for roll in write.rolls]
        written.append((write.segment.base, write.start, write.buffers))
        touched: list[Record] = []
        attempts = self._fresh()
        for base, position, data in written:
            self._ledger.enter_segment(base)
            for append in appends_in(b"".join(data), position, self._seed):
                attempts.apply(self._ledger, append[0].position)
                apply(self._ledger, append, end_of(append))
                show(self._ledger, self._ledger.end)
                touched += append
        attempts.apply(self._ledger, self._ledger.end)
        self._seen.difference_update(attempts.noted)
        self._equal("applied_upto", self._ledger.shown_to, self._theirs.shown_to)
        if self._theirs.end > self._ledger.end:
            return  # the engine has applied later appends already, so its ledger is ahead
        for record in touched:
            self._compare(record)
        if self._ledger.timers.waiting or self._theirs.timers.waiting:
            self._equal("timers", self._ledger.timers.state(), self._theirs.timers.state())

    def verify(self) -> None:
        """Compare both ledgers. Raises AssertionError. Do nothing if the engine has failed."""
        if not self._commit_queue.broken():
            self._fresh().apply(self._ledger)
            theirs = state_of(self._theirs)
            for what, mine in state_of(self._ledger).items():
                self._equal(what, mine, theirs[what])

    def _fresh(self) -> NotedAttempts:
        """Return what the page ATTEMPTS says since the last call."""
        found = entries_of(self._attempts._words, self._seed)
        fresh = [each for each in found if each not in self._seen]
        self._seen.update(fresh)
        return NotedAttempts(fresh)

    def _compare(self, record: Record) -> None:
        mine, theirs = self._ledger, self._theirs
        if isinstance(record, Run):
            for ledger_of in ("first", "next", "end"):
                queues = [each.queue(record.topic, record.queue) for each in (mine, theirs)]
                found = [getattr(queue, ledger_of, None) for queue in queues]
                self._equal(f"{ledger_of} of {record.topic}/{record.queue}", *found)
        elif isinstance(record, Prepare | Decided):
            undecided = [transaction_in(each, record.tx) for each in (mine, theirs)]
            self._equal(f"transaction {record.tx}", *undecided)
        elif isinstance(record, Acks):
            for key in dict.fromkeys(
                (each.group, each.topic, each.queue) for each in record.ranges
            ):
                acked = [each.acked_of(*key).beyond(0) for each in (mine, theirs)]
                self._equal(f"acks of {key}", *acked)
        elif isinstance(record, Tried):
            for key in dict.fromkeys(each[:3] for each in record.ranges):
                tried = [each.tried_of(*key).all() for each in (mine, theirs)]
                self._equal(f"tries of {key}", *tried)

    def _equal(self, what: str, mine: Any, theirs: Any) -> None:
        assert mine == theirs, f"{what}: the bytes say {mine}, and the engine remembers {theirs}"


def appends_in(data: bytes, position: int, seed: int) -> list[list[Record]]:
    """Return the appends in `data`, whose first byte is at `position`."""
    appends: list[list[Record]] = [[]]
    at = 0
    while at < len(data):
        record = decode(data, at, position + at, seed)
        appends[-1].append(record)
        at += aligned(record.size)
        if record.flags & LAST:
            appends.append([])
    assert not appends.pop(), "the last append has no end"
    return appends


def copy_of(ledger: Ledger) -> Ledger:
    """Return a copy of `ledger` without listeners."""
    copy = Ledger(ledger.index.base)
    copy.unsettled, copy.known_from = ledger.unsettled, ledger.known_from
    copy.damaged = ledger.damaged
    carry(copy, carried_of(ledger))
    copy.timers = ledger.timers.copy()
    for entry in ledger.undecided.values():
        prepare_applied(copy, entry.prepare, entry.runs, entry.start)
    copy.index = deepcopy(ledger.index)
    copy.shown_to, copy.end, copy.last_us = ledger.shown_to, ledger.end, ledger.last_us
    return copy


def state_of(ledger: Ledger) -> dict[str, Any]:
    """Return all that a ledger says, except for what it has moved to files."""
    index = ledger.index
    lanes = {
        key: [list(getattr(lane, name)) for name in ("starts", "counts", "records", "bodies")]
        for key, lane in index.lanes.items()
    }
    carried = carried_of(ledger)
    # An entry without acks says nothing, so it may be missing.
    carried["acks"] = [ack for ack in carried["acks"] if ack[3] or ack[4]]
    return {
        **carried,
        "held marks": ledger.held_marks,
        # Only how many wait: the timers themselves were compared while their files were open.
        "timers": ledger.timers.waiting,
        "undecided": {tx: transaction_in(ledger, tx) for tx in sorted(ledger.undecided)},
        "applied_upto": ledger.shown_to,
        "lanes": lanes,
        "outcomes": [list(index.outcome_keys), list(index.outcome_places)],
        "ids": index.ids.encode(),
    }


def transaction_in(ledger: Ledger, tx: int) -> tuple[object, ...] | None:
    """Return the transaction `tx` of `ledger`."""
    entry = ledger.undecided.get(tx)
    if entry is None:
        return None
    runs = [(run.topic, run.queue, run.position) for run in entry.runs]
    return entry.prepare.position, entry.start, runs, entry.prepare.marks
