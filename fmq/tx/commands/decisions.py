"""Decisions: committing or rolling back a prepared transaction, once, and looking up the outcome.

The first durable decision wins. A call that decides or asks while a decision is planned waits until
that one is durable.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from threading import get_ident
from typing import Protocol, TypeVar, get_args

from fmq.arguments.names import check_name, check_text, check_tx_id
from fmq.basics.message import Decision, Message
from fmq.basics.results import Outcome
from fmq.errors import AlreadyDecided, BadOption, Damaged, Impaired, UnknownTransaction
from fmq.steps.call_steps import Durable, Steps, all_shown, nothing
from fmq.steps.thread_driver import drive
from fmq.store.bytes.content import text_bytes
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.kinds import COMMIT, Decided, Kind
from fmq.tx.commands.appends import Ending, decision_on
from fmq.tx.commands.buffer import Receipts
from fmq.tx.commands.ids import IdsInUse
from fmq.tx.commands.limits import DECISION_BYTES_MAX, REASON_BYTES_MAX
from fmq.tx.commands.prepared_bytes import PreparedBytes
from fmq.tx.commands.reserve import Reserve
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.ledger import Entry
from fmq.tx.ledger.seal import seal_text
from fmq.tx.looks.outcomes import Outcomes, outcome_of, undecided_outcome
from fmq.tx.looks.receipts import RepeatOf, receipts_of, with_left_out

T = TypeVar("T")
DECISIONS = get_args(Decision)


class Numbered(Protocol):
    """A prepared transaction with its number, which tells it from another one of the same id."""

    @property
    def tx_id(self) -> str: ...

    @property
    def number(self) -> int: ...

    @property
    def left_out(self) -> Sequence[RepeatOf]: ...


class Decisions:
    """The decisions of one engine."""

    def __init__(
        self,
        writer: Writer,
        outcomes: Outcomes,
        in_use: IdsInUse,
        reserve: Reserve,
        kept: PreparedBytes,
    ) -> None:
        self._writer = writer
        self.commit_queue = self._commit_queue = writer.commit_queue
        self.changing = writer.commit_queue.changing
        self._ledger = writer.ledger
        self._outcomes = outcomes
        self._in_use = in_use
        self._reserve = reserve
        self._kept = kept

    def commit_prepared(
        self, transaction: Numbered, sync: bool | None = None, *, posted: bool = False
    ) -> Receipts:
        """Commit a prepared transaction, for its own handle. Return a function that makes its
        receipts.

        If `posted`, the call does not wait until the decision is durable. A crash then leaves the
        transaction undecided, and its checker commits it again: the database has its marker.
        """
        call = self.committing_prepared(transaction.tx_id, transaction.number, sync, posted=posted)
        found = self._drive(call)
        if not transaction.left_out:
            return found
        return lambda: with_left_out(found(), transaction.left_out)

    def committing_prepared(
        self, tx_id: str, number: int, sync: bool | None = None, *, posted: bool = False
    ) -> Steps[Receipts]:
        """Do what `commit_prepared` does, for a caller that may not block."""
        sync = False if posted else sync
        decided = yield from self._deciding(tx_id, COMMIT, sync, number=number, posted=posted)
        found = decided.runs if isinstance(decided, Ending) else decided.receipts
        return partial(receipts_of, found)

    def roll_back_prepared(self, transaction: Numbered) -> None:
        """Roll back a prepared transaction, for its own handle."""
        self._drive(self.rolling_back(transaction.tx_id, transaction.number))

    def rolling_back(self, tx_id: str, number: int) -> Steps[object]:
        """Do what `roll_back_prepared` does, for a caller that may not block."""
        return self._deciding(tx_id, Kind.ROLLBACK, number=number)

    def _drive(self, call: Steps[T]) -> T:
        return drive(call, self._commit_queue, self._writer.clock)

    def decide(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str = "",
        decided_by: str = "",
        seal: str | None = None,
    ) -> Outcome:
        """Commit or roll back a transaction, and return its outcome. If an earlier call made the
        same decision, return the outcome of that decision.
        """
        return self._drive(
            self.deciding(tx_id, decision, reason=reason, decided_by=decided_by, seal=seal)
        )

    def deciding(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str = "",
        decided_by: str = "",
        seal: str | None = None,
    ) -> Steps[Outcome]:
        """Do what `decide` does, for a caller that may not block."""
        check_tx_id(tx_id)
        said: object = decision  # callers may pass anything, whatever the annotation says
        if not isinstance(said, str) or said not in DECISIONS:
            raise BadOption(
                f"decision {decision!r}: must be 'commit' or 'rollback', or 'commit_without_lost' "
                "for a transaction that is impaired. Nothing was changed."
            )
        check_reason(reason)
        if check_text("decided_by", decided_by):
            check_name("decided_by", decided_by)
        if seal is not None:
            check_text("seal", seal)
        kind = Kind.ROLLBACK if decision == "rollback" else Kind.COMMIT
        without_lost = decision == "commit_without_lost"
        decided = yield from self._deciding(
            tx_id, kind, None, reason, decided_by, seal, without_lost=without_lost
        )
        if isinstance(decided, Ending):
            return outcome_of(decided.decided, receipts_of(decided.runs))
        return decided

    def _deciding(
        self,
        tx_id: str,
        kind: Kind,
        sync: bool | None = None,
        reason: str = "",
        decided_by: str = "",
        seal: str | None = None,
        number: int = 0,
        *,
        posted: bool = False,
        without_lost: bool = False,
    ) -> Steps[Ending | Outcome]:
        """Write a decision, or return the outcome if the same decision was made before.

        With `number`, decide the transaction of that number only: another transaction may have
        taken the id since.

        Its waits for syncs are steps. Two reads of the disk are not: of an old index, for an id
        that is not undecided, and of prepared bodies that are not in memory.
        """
        self.refuse_nested()
        while True:
            with self._commit_queue.lock:
                self._commit_queue.check()
                entry = self._ledger.by_tx_id.get(tx_id)
                prepared_at = -1 if entry is None else entry.prepare.position
            # Wait for its PREPARE to be durable, as the call that prepares it does.
            if prepared_at >= self._ledger.shown_to:
                yield all_shown(self._commit_queue)
            if entry is None:
                before = self._decided_before(tx_id, kind, seal, number)
                if before is None:
                    continue  # another call has prepared a transaction of this id meanwhile
                if self._commit_queue.waits(sync):
                    # The earlier call may not have waited for its sync.
                    yield Durable(nothing, None, sync)
                return before
            _check_number(tx_id, number, entry.tx)
            if seal is not None and seal != seal_text(entry.prepare.seal):
                raise UnknownTransaction(
                    f"transaction {tx_id!r} has the seal {seal_text(entry.prepare.seal)}, not "
                    f"{seal}: the decision is for another one, and nothing was changed"
                )
            lost = entry.lost(self._ledger.damaged)
            if lost and kind == COMMIT and not without_lost:
                reasons = [self._ledger.damaged[run.position] for run in lost]
                raise Impaired(tx_id, sum(run.count for run in lost), reasons)
            decided = decision_on(entry.prepare, kind, decided_by, reason, entry.asked)
            ending = self.read_ending(entry, decided, {run.position for run in lost})
            if ending is not None:
                is_awaited = partial(self._is_awaited, entry) if posted else None
                if (yield Durable(self.plan, ending, sync, is_awaited=is_awaited)):
                    return ending
            # Another call has decided or relocated the transaction. Look it up again.

    def is_deciding(self, entry: Entry) -> bool:
        """Return whether a decision of `entry` is planned, although readers still see it as
        undecided.
        """
        return self._ledger.undecided.get(entry.tx) is not entry

    def read_ending(self, entry: Entry, decided: Decided, lost: Set[int]) -> Ending | None:
        """Read what the records that end `entry` need, without its messages at the positions
        `lost`. Return None if another call has decided it first.
        """
        writer, journal = self._writer, self._writer.journal
        ending = Ending(entry, decided, self._outcomes, writer.options.reference_bytes_min)
        with self._commit_queue.lock:
            ending.prepare, runs = entry.prepare, [*entry.runs]
        ending.leave_out(lost)
        try:
            ending.read_ahead(journal.current, runs)
        except (OSError, Damaged):
            with self._commit_queue.lock:
                self._commit_queue.check()  # the engine may have been closed meanwhile
                if not self.is_due(ending):
                    # The transaction was relocated, and retention has dropped the records at its
                    # old place.
                    return None
            raise
        return ending

    def is_due(self, ending: Ending) -> bool:
        """Return whether its transaction is still undecided, and lies where it was read ahead. The
        caller holds the engine's lock.
        """
        return ending.entry.prepare is ending.prepare and not self.is_deciding(ending.entry)

    def plan(self, ending: Ending) -> bool:
        """Plan the append of `ending`. Return False if another call was faster. The caller holds
        the engine's lock.
        """
        journal, entry, decided = self._writer.journal, ending.entry, ending.decided
        if entry.prepare is not ending.prepare or self.is_deciding(entry):
            return False
        append = ending.records(journal.current)
        # What is reserved for the transaction is more than enough for its decision.
        if not (journal.fits(entry.prepare.reserved) or journal.fits(measured(append))):
            # The append will be in the next segment, and the prepared bodies are not: copy them.
            at_most = DECISION_BYTES_MAX + decided.size
            if decided.kind == COMMIT:
                at_most += measured([entry.prepare, *entry.runs])
            append = ending.records(journal.roll(at_most, ordinary=False))
        self._writer.send(append, ordinary=False, stated=decided)
        self._reserve.give_back(entry.prepare.reserved)
        self._kept.drop(entry.prepare)
        return True

    def _is_awaited(self, entry: Entry) -> bool:
        """Return whether a caller waits for the messages that `entry` publishes. The caller holds
        the engine's lock.
        """
        return any(self._ledger.is_awaited(run.topic) for run in entry.runs)

    def _decided_before(
        self, tx_id: str, kind: Kind, seal: str | None, number: int
    ) -> Outcome | None:
        """Return the outcome if the transaction was decided as `kind` says. Return None if it is
        undecided.

        Raises AlreadyDecided if the opposite decision was made.
        """
        outcome = self.outcome(tx_id, number)
        if outcome.state == "undecided":
            return None
        if seal is not None and seal != outcome.seal:
            raise UnknownTransaction(
                f"transaction {tx_id!r} had the seal {outcome.seal}, not {seal}: the decision is "
                "for another one, and nothing was changed"
            )
        if outcome.state == ("committed" if kind == Kind.COMMIT else "rolled back"):
            return outcome
        raise AlreadyDecided(outcome)

    def refuse_nested(self) -> None:
        """Raise Nested if a signal handler makes this call inside of another call."""
        self._commit_queue.refuse_nested(get_ident())

    # --- asking ---------------------------------------------------------------------------------

    def outcome(self, tx_id: str, number: int = 0) -> Outcome:
        """Return what became of the transaction; raise UnknownTransaction if it is not known.

        With `number`, also raise UnknownTransaction if another transaction has taken the id since.
        After a failed write, only decisions that were durable before it count. The next engine
        finds out which of the others reached the disk; until then they raise EngineFailed.
        """
        check_tx_id(tx_id)
        outcome = self._known_outcome(tx_id, number)
        if outcome is not None:
            return outcome
        with self._commit_queue.lock:
            self._refuse_to_guess()
        if self._in_use.is_open(tx_id):
            raise UnknownTransaction(
                f"transaction {tx_id!r} is open and has not been prepared: nothing of it is "
                "in the journal yet"
            )
        raise self._outcomes.unknown(tx_id)

    def prepared(self, tx_id: str, number: int) -> list[Message]:
        """Return the messages of an undecided transaction; raise UnknownTransaction."""
        with self._commit_queue.lock:
            entry = self._ledger.undecided.get(number)
            runs = [] if entry is None else [*entry.runs]
        if entry is None:
            raise self._outcomes.unknown(tx_id)
        return [message for run in runs for message in self._outcomes.messages_of(run)]

    def check_undecided(self) -> None:
        """Wait until planned decisions are durable, so that no decided transaction is shown as
        undecided. Raise EngineFailed if they could not be written.
        """
        self._writer.catch_up(self._ledger.decided_at)

    def _refuse_to_guess(self) -> None:
        """Raise EngineFailed if the engine has failed. The caller holds the engine's lock."""
        if self._commit_queue.broken():
            raise self._commit_queue.failed_error() from self._commit_queue.failure

    def flush(self) -> None:
        """Make everything that is planned durable."""
        self._commit_queue.flush()

    def make_durable(self, sync: bool | None) -> None:
        """Wait until an earlier decision is durable, whose call did not wait. Do nothing if a call
        with this `sync` does not wait.
        """
        if self._commit_queue.waits(sync):
            self._commit_queue.flush(force=sync is True)

    def outcome_at(self, position: int, tx_id: str) -> Outcome:
        """Return the outcome by the decision at `position`, even if it is older than the window of
        outcomes.
        """
        return self._outcomes.at(position, tx_id)

    def _known_outcome(self, tx_id: str, number: int) -> Outcome | None:
        with self._commit_queue.lock:
            entry = self._ledger.by_tx_id.get(tx_id)
            if entry is not None:
                _check_number(tx_id, number, entry.tx)
        if entry is not None:
            # Wait for its first PREPARE (`tx`), not for that of a relocation, which changes no
            # outcome.
            self._writer.catch_up(entry.tx)
            return undecided_outcome(entry)
        decided = self._outcomes.find(tx_id)
        if decided is None:
            return None
        _check_number(tx_id, number, decided.tx)
        return self._outcomes.outcome(decided)


def _check_number(tx_id: str, number: int, found: int) -> None:
    """Raise UnknownTransaction unless the transaction that was found has this number. 0
    fits any.
    """
    if number not in (0, found):
        raise UnknownTransaction(
            f"transaction {tx_id!r} ended so long ago that its id is another one's by now, and the "
            "journal tells of that one alone. Nothing was changed; with a longer "
            "outcome_window_seconds an id is kept for longer."
        )


def check_reason(reason: str) -> None:
    """Raise TypeError, BadName or TooLarge if a decision cannot hold `reason`."""
    text_bytes("reason", reason, REASON_BYTES_MAX)
