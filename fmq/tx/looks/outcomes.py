"""Looking up decisions: first in the index of the segment being written, then in older indexes.

An index holds only a checksum of each tx_id, and where the decision is. The record of the decision
has the tx_id itself, and the records before it in the same append are what it published. So
outcomes take memory only for the segment being written.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Protocol

from fmq.arguments.options import Options
from fmq.basics.clock import Clock, as_datetime
from fmq.basics.message import Message, Origin, Receipt
from fmq.basics.results import JointDecision, Outcome, UndecidedTransaction
from fmq.errors import Damaged, UnknownTransaction
from fmq.store.bytes.decoding import columns_of, with_bodies
from fmq.store.bytes.joint_column import joint_in
from fmq.store.bytes.kinds import Decided, Kind, Record, Run
from fmq.store.bytes.record import aligned
from fmq.store.index.catalog import Catalog
from fmq.store.journal.segment import Segment, segment_name
from fmq.store.reading.batch import messages_of
from fmq.store.reading.reader import Reader
from fmq.tx.ledger.ledger import Entry, Ledger
from fmq.tx.ledger.seal import seal_text
from fmq.tx.looks.receipts import receipt_of


class Located(Protocol):
    """What tells where segments are: a journal, or a follower of one."""

    segments: list[Segment]

    def segment_of(self, position: int) -> Segment | None: ...


class Outcomes:
    """The decisions of one journal."""

    def __init__(
        self,
        lock: RLock,
        journal: Located,
        ledger: Ledger,
        catalog: Catalog,
        reader: Reader,
        clock: Clock,
        options: Options,
        *,
        lags: bool = False,
    ) -> None:
        """With `lags`, the ledger is that of a read-only engine, which may be behind the writer."""
        self._lock = lock
        self._journal = journal
        self._ledger = ledger
        self._catalog = catalog
        self._reader = reader
        self._clock = clock
        self.take_over(options)
        self._lags = lags
        # Waits until what was planned at this position is durable.
        self.catch_up: Callable[[int], None] = lambda position: None

    def take_over(self, options: Options) -> None:
        """Know outcomes as far back as `options` say."""
        self._window_seconds = options.outcome_window_seconds

    def window(self) -> str:
        """Return a text that says how far back outcomes are known."""
        kept = f"decisions at or after position {self._journal.segments[0].base}"
        if self._window_seconds is None:
            return kept
        return f"the last {self._window_seconds:g} seconds, and {kept}"

    def unknown(self, tx_id: str) -> UnknownTransaction:
        """Return the error for a `tx_id` without an outcome. The error says why there may be
        none.
        """
        return UnknownTransaction(
            f"no transaction {tx_id!r} is undecided or was decided within the window "
            f"({self.window()}). It was never prepared, was rolled back before, or was decided "
            f"earlier than that.{self._not_seen()}"
        )

    def _not_seen(self) -> str:
        """Return the sentence that a read-only engine adds to the error: the writer may
        know more.
        """
        if not self._lags:
            return ""
        return (
            f" Or it was prepared or decided after position {self._ledger.shown_to}: what "
            "lies there is not seen with read_only=True until the writer appends something, or "
            "opens the directory, next. Opening it for writing tells."
        )

    def find(self, tx_id: str) -> Decided | None:
        """Return the decision of `tx_id`; None if it was not decided within the window."""
        with self._lock:
            indexes = [self._ledger.index, *reversed(self._ledger.sealed)]
            positions = [at for index in indexes for at in index.find_outcomes(tx_id)]
        if positions:
            self.catch_up(positions[0])
        for position in positions:
            if (decided := self._read(position, tx_id)) is not None:
                return self._within_window(decided)
        for position in self._catalog.find_outcomes(tx_id):
            if (decided := self._read(position, tx_id)) is not None:
                return self._within_window(decided)
        return None

    def _within_window(self, decided: Decided) -> Decided | None:
        if self._window_seconds is None:
            return decided
        age_us = self._clock.time_us() - decided.time_us
        return decided if age_us <= self._window_seconds * 1_000_000 else None

    def _read(self, position: int, tx_id: str) -> Decided | None:
        record = self._record(position)
        if record is None:
            return None
        if not isinstance(record, Decided):
            base, _ = self._locate(position)
            raise Damaged(segment_name(base), position, "no decision, where the index names one")
        return record if record.tx_id == tx_id else None

    def _record(self, position: int) -> Record | None:
        """Return the record at `position`; None if retention has dropped it."""
        segment = self._journal.segment_of(position)
        if segment is None:
            return None
        try:
            return self._reader.record(segment.base, position - segment.base)
        except FileNotFoundError:
            if self._journal.segment_of(position) is None:
                return None
            raise Damaged(segment.name, position, "the segment is missing") from None

    def _locate(self, position: int) -> tuple[int, int]:
        segment = self._journal.segment_of(position)
        if segment is None:
            raise Damaged(segment_name(0), position, "lies below what retention kept")
        return segment.base, position - segment.base

    def at(self, position: int, tx_id: str) -> Outcome:
        """Return the outcome that the decision of `tx_id` at `position` tells, however old it is.
        Raises UnknownTransaction if retention has dropped it.
        """
        decided = self._read(position, tx_id)
        if decided is None:
            raise self.unknown(tx_id)
        return self.outcome(decided)

    def outcome(self, decided: Decided) -> Outcome:
        """Return the outcome with its receipts. Raises UnknownTransaction if retention has dropped
        the records meanwhile.
        """
        at = decided.append_start
        found = []
        while at < decided.position:
            record = self._record(at)
            if record is None:
                raise self.unknown(decided.tx_id)
            if isinstance(record, Run):
                found.append(record)
            at += aligned(record.size)
        return outcome_of(
            decided,
            [receipt_of(run) for run in found],
        )

    def whole(self, position: int) -> Run:
        """Return the run at `position` with all that it holds, to be written again."""
        base, place = self._locate(position)
        run, data, at = self._reader.run_with_bytes(base, place)
        return with_bodies(data, at, run)

    def messages_of(self, pre: Run) -> list[Message]:
        """Return the messages of a prepared run. They have no offsets yet."""
        base, place = self._locate(pre.position)
        run, data, at = self._reader.run_with_bytes(base, place)
        columns, tx_id = columns_of(data, at, run), run.tx_id or None
        origin = Origin(
            run.topic, run.queue, run.position, run.time_us, tx_id, run.producer or None
        )
        found = messages_of(columns, columns.bodies(), origin, 0, 0)
        return [each._replace(offset=None) for each in found]


def undecided_view(entry: Entry) -> UndecidedTransaction:
    """Return an undecided transaction as users see it."""
    prepare = entry.prepare
    return UndecidedTransaction(
        prepare.tx_id,
        prepare.producer or None,
        as_datetime(prepare.prepared_us),
        prepare.messages,
        prepare.bytes,
        tuple(dict.fromkeys(run.topic for run in entry.runs)),
        prepare.position,
        seal_text(prepare.seal),
        bound=prepare.bound,
    )


def undecided_outcome(entry: Entry) -> Outcome:
    """Return the outcome of a transaction that is undecided."""
    prepare = entry.prepare
    return Outcome(
        prepare.tx_id,
        "undecided",
        prepare.producer or None,
        as_datetime(prepare.prepared_us),
        prepare.messages,
        prepare.bytes,
        seal_text(prepare.seal),
        position=prepare.position,
        asked=entry.asked,
    )


def outcome_of(decided: Decided, receipts: list[Receipt]) -> Outcome:
    """Return the outcome of a transaction that was decided."""
    return Outcome(
        decided.tx_id,
        "committed" if decided.kind == Kind.COMMIT else "rolled back",
        decided.producer or None,
        as_datetime(decided.prepared_us),
        decided.messages,
        decided.bytes,
        seal_text(decided.seal),
        as_datetime(decided.time_us),
        decided.decided_by or None,
        decided.reason or None,
        decided.position,
        tuple(receipts),
        decided.asked,
        joint_of(decided) if decided.extension else None,
    )


def joint_of(decided: Decided) -> JointDecision | None:
    joint = joint_in(decided.extension)
    if joint is None:
        return None
    name, value = (None, None) if joint.mark is None else joint.mark[:2]
    return JointDecision(joint.joint, joint.endings, name, value)
