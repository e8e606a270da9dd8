"""The transaction manager: what is open, what is undecided, and how it is ended.

Everything a commit writes is one append, and COMMIT, its last record, alone publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fmq.errors import AlreadyDecided, BadOption, Damaged, TxIdInUse, UnknownTransaction
from fmq.message import Decision
from fmq.store.content import text_bytes
from fmq.store.kinds import COMMIT, Decided, Kind
from fmq.tx.drafts import Draft, decision_on, prepare_of
from fmq.tx.ids import IdsInUse, TxIds
from fmq.tx.ledger import Entry, seal_text
from fmq.tx.limits import DECISION_BYTES_MAX, REASON_BYTES_MAX, Limits
from fmq.tx.names import check_name, check_seconds, check_text, check_tx_id
from fmq.tx.outcomes import Outcomes, outcome_of, undecided_outcome
from fmq.tx.phases import Commit, Prepared
from fmq.tx.publication import Publication
from fmq.tx.receipts import receipts_of
from fmq.tx.relocation import relocate_oldest
from fmq.tx.reserve import Reserve, size_of_all
from fmq.tx.transaction import Receipts, Transaction
from fmq.tx.writer import Writer

if TYPE_CHECKING:
    from fmq.infos import Outcome

T = TypeVar("T", bound=Transaction)
CACHED_BYTES_MAX = 16 << 20
CHECK_AFTER_MAX = 1_000_000_000  # seconds: some thirty years


class TransactionManager:
    """The transactions of one engine."""

    def __init__(
        self,
        writer: Writer,
        outcomes: Outcomes,
        drawn: bytes,
        check_open: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        """`check_open` raises if nothing is shown any more; `after` is called at the end of each
        call of a transaction that has written.
        """
        self.writer = writer
        self.check_open = check_open
        self.after = after
        self.topics = writer.ledger.topics
        self._outcomes = outcomes
        self._ledger = writer.ledger
        self._journal = journal = writer.journal
        self._group = writer.group
        self._options = options = writer.options
        self._waits = writer.waits(None)
        self._compress_bytes_min = options.compress_bytes_min
        self.limits = Limits(options, journal.append_bytes_max)
        self._ids = TxIds(drawn)
        self.in_use = IdsInUse(self._ledger, outcomes)
        self._reserve = Reserve(journal.spares, journal.append_bytes_max)
        self._cached_bytes = 0
        for entry in self._ledger.undecided.values():
            entry.prepare.reserved = Reserve.needed_for(size_of_all([entry.prepare, *entry.runs]))
            self._reserve.remember(entry.prepare.reserved)

    # --- begin --------------------------------------------------------------------------------

    def begin(
        self,
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
        make: type[T] = Transaction,  # type: ignore[assignment]
    ) -> T:
        """A new transaction; TxIdInUse if its id is open or was decided within the window."""
        if producer is not None:
            producer = check_name("producer", producer)
        check_after_ms = -1
        if check_after is not None:
            after = check_seconds("check_after", check_after)
            if not 0 <= after <= CHECK_AFTER_MAX:
                raise BadOption(
                    f"check_after={after:g}: must be from 0 to {CHECK_AFTER_MAX:,} seconds. "
                    "Nothing was changed."
                )
            check_after_ms = round(after * 1000)
        if tx_id is None:
            made = self._ids.make(self.writer.clock.time_us())
            return make(self, made, producer or "", check_after_ms, named=False)
        tx_id = check_tx_id(tx_id)
        if self._ids.has_made(tx_id):
            raise TxIdInUse(
                f"transaction {tx_id!r} is one that this engine has named itself; give another one "
                "a name of its own"
            )
        transaction = make(self, tx_id, producer or "", check_after_ms, named=True)
        with self._group.lock:
            self._group.check()
            self.in_use.hold(transaction)
        try:
            self.in_use.refuse_decided(tx_id)
        except BaseException:
            self.in_use.let_go(transaction)
            raise
        return transaction

    # --- one phase ------------------------------------------------------------------------------

    def commit_at_once(self, transaction: Transaction, sync: bool | None = None) -> Receipts:
        """TX_MESSAGEs, ACK and COMMIT in one append, with one sync."""
        wait = self._waits if sync is None else self.writer.waits(sync)
        tx_id, producer = transaction.names
        draft = Draft(transaction, self._compress_bytes_min)
        commit = Commit(self.topics, draft.topics, tx_id, producer, draft, transaction.acks)
        self._group.run(self._plan_at_once, (transaction, commit), wait=wait, force=sync is True)
        if transaction.named:
            self.in_use.let_go(transaction)
        return commit.receipts

    def _plan_at_once(self, what: tuple[Transaction, Commit]) -> None:
        transaction, commit = what
        self.in_use.check_unused(commit.tx_id)
        transaction.planned()
        self.writer.place(commit)
        transaction.number = commit.tx
        if transaction.named:
            self.in_use.note_planned(commit.tx_id, commit.position)

    # --- two phases -----------------------------------------------------------------------------

    def prepare(self, transaction: Transaction) -> None:
        """PREPARE and PRE_MESSAGEs in one append, durable whatever the mode."""
        tx_id, writer, in_use = transaction.tx_id, self.writer, self.in_use
        draft = Draft(transaction, self._compress_bytes_min)
        prepare = prepare_of(transaction, draft)
        prepared = Prepared(self.topics, prepare, draft)

        def plan(prepared: Prepared) -> None:
            in_use.check_unused(tx_id)
            self.limits.check_open(self._ledger, in_use.all_preparing(), prepare)
            prepare.reserved = Reserve.needed_for(prepared.size)
            self._reserve.take(prepare.reserved)
            transaction.planned()
            try:
                writer.place(prepared)
            except BaseException:
                self._reserve.give_back(prepare.reserved)
                raise
            transaction.number = prepare.tx
            if transaction.named:
                in_use.note_planned(tx_id, prepared.position)
            in_use.preparing[tx_id] = prepare
            prepared.is_kept = self._keep(draft)

        self._group.run(plan, prepared, force=True)
        in_use.let_go(transaction)

    def _keep(self, draft: Draft) -> bool:
        """Whether it stays in memory: what is small will be copied, and need not be read again."""
        cached = self._cached_bytes + draft.size
        if cached > CACHED_BYTES_MAX or not draft.is_small(self._options.reference_bytes_min):
            return False
        self._cached_bytes = cached
        return True

    # --- decisions ------------------------------------------------------------------------------

    def commit_prepared(self, transaction: Transaction, sync: bool | None = None) -> Receipts:
        """Commit, for the one who has prepared it."""
        self._group.refuse_inside()
        with self._group.lock:
            self._group.check()
            entry = self._ledger.by_tx_id.get(transaction.tx_id)
        if entry is not None and entry.tx == transaction.number:
            commit = Commit.of_prepared(self.topics, entry)
            if commit is not None and self._end_straight(entry, commit, sync):
                return commit.receipts
        number = transaction.number
        decided = self._decide(transaction.tx_id, COMMIT, "", "", None, number, sync)
        if isinstance(decided, Publication):
            return partial(receipts_of, decided.runs)
        self.make_durable(sync)  # somebody else may not have waited for it
        return partial(receipts_of, decided.receipts)

    def roll_back_prepared(self, transaction: Transaction) -> None:
        """Roll back, for the one who has prepared it."""
        self._decide(transaction.tx_id, Kind.ROLLBACK, "", "", None, transaction.number)

    def decide(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str = "",
        decided_by: str = "",
        seal: str | None = None,
    ) -> Outcome:
        """Commit or roll back; the same decision again is a success."""
        check_tx_id(tx_id)
        said: object = decision  # so far only declared to be what it is
        if not isinstance(said, str) or said not in ("commit", "rollback"):
            raise BadOption(
                f"decision {decision!r}: must be 'commit' or 'rollback'. Nothing was changed."
            )
        check_reason(reason)
        if check_text("name of who decides", decided_by):
            check_name("name of who decides", decided_by)
        if seal is not None:
            check_text("seal", seal)
        kind = Kind.COMMIT if decision == "commit" else Kind.ROLLBACK
        decided = self._decide(tx_id, kind, reason, decided_by, seal)
        if isinstance(decided, Publication):
            return outcome_of(decided.decided, receipts_of(decided.runs))
        return decided

    def _decide(
        self,
        tx_id: str,
        kind: Kind,
        reason: str,
        decided_by: str,
        seal: str | None,
        number: int | None = None,
        sync: bool | None = None,
    ) -> Publication | Outcome:
        """What was written, or the outcome of the same decision made before. With `number` it
        is for that transaction alone: the id may be another one's by now.
        """
        self._group.refuse_inside()
        while True:
            with self._group.lock:
                self._group.check()
                entry = self._ledger.by_tx_id.get(tx_id)
                busy = entry is not None and entry.busy
            if entry is None:
                before = self._decided_before(tx_id, kind, seal, number)
                if before is None:
                    continue  # its PREPARE was on its way, and is durable by now
                return before
            if number not in (None, entry.tx):
                raise self._another(tx_id)
            if seal is not None and seal != seal_text(entry.prepare.seal):
                raise UnknownTransaction(
                    f"transaction {tx_id!r} has the seal {seal_text(entry.prepare.seal)}, not "
                    f"{seal}: the decision is for another one, and nothing was changed"
                )
            if not busy:
                decided = decision_on(entry.prepare, kind, decided_by, reason, entry.asked)
                publication = self._end(entry, decided, sync)
                if publication is not None:
                    return publication
            # Somebody else is at it: once that is durable, look again.
            self._group.flush()

    def _is_ending(self, entry: Entry) -> bool:
        """Whether somebody else is at it, or was faster. Under the lock."""
        return entry.busy or self._ledger.undecided.get(entry.tx) is not entry

    def _end_straight(self, entry: Entry, commit: Commit, sync: bool | None) -> bool:
        """Append `commit`, which ends `entry`; False if somebody else is at it, or was."""
        writer = self.writer

        def plan(commit: Commit) -> bool:
            if self._is_ending(entry):
                return False
            writer.place(commit, ordinary=False)
            entry.busy = True
            self._forget_kept(entry)
            return True

        return self._group.run(plan, commit, wait=writer.waits(sync), force=sync is True)

    def _end(self, entry: Entry, decided: Decided, sync: bool | None) -> Publication | None:
        """Append what ends `entry`; None if somebody else was faster."""
        writer, journal = self.writer, self._journal
        least = self._options.reference_bytes_min
        publication = Publication(entry, decided, self._outcomes, least)
        with self._group.lock:
            prepare, runs = entry.prepare, [*entry.runs]
        try:
            publication.read_ahead(journal.current, runs)
        except (OSError, Damaged):
            with self._group.lock:
                self._group.check()  # closed since then, and its files with it
                if entry.prepare is not prepare or self._is_ending(entry):
                    return None  # it was written again, and where it was retention has dropped it
            raise

        def plan(publication: Publication) -> bool:
            if self._is_ending(entry):
                return False
            now = writer.now_us()
            records = publication.records(journal.current)
            if not journal.fits(journal.measure(records)):
                # What could be referred to now lies in another segment: choose again.
                at_most = DECISION_BYTES_MAX + decided.size
                if decided.kind == COMMIT:
                    at_most += size_of_all([entry.prepare, *entry.runs])
                records = publication.records(journal.roll(at_most, ordinary=False))
                journal.measure(records)
            writer.assign(publication.runs, now)
            for record in records:
                record.time_us = now
            decided.append_start = journal.position
            entry.busy = True
            writer.plan(records)
            self._forget_kept(entry)
            return True

        done = self._group.run(plan, publication, wait=writer.waits(sync), force=sync is True)
        return publication if done else None

    def _forget_kept(self, entry: Entry) -> None:
        self._reserve.give_back(entry.prepare.reserved)
        if entry.kept is not None:
            self._cached_bytes -= entry.kept.size

    @staticmethod
    def _another(tx_id: str) -> UnknownTransaction:
        return UnknownTransaction(
            f"transaction {tx_id!r} was decided by somebody else, so long ago that its id is that "
            "of another one by now: nothing was changed, and that one was left alone. Whoever "
            "decided it knows how."
        )

    def _decided_before(
        self, tx_id: str, kind: Kind, seal: str | None, number: int | None
    ) -> Outcome | None:
        """How it was decided before, if not otherwise; None if it is undecided after all."""
        if number is not None:
            decided = self._outcomes.find(tx_id)
            if decided is not None and decided.tx != number:
                raise self._another(tx_id)
        outcome = self.outcome(tx_id)
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

    def relocate_oldest(self) -> bool:
        """Write the oldest undecided transaction again if it is too far behind; whether it was."""
        return relocate_oldest(self.writer, self._outcomes, self._reserve.bytes)

    # --- asking ---------------------------------------------------------------------------------

    def outcome(self, tx_id: str, number: int = 0) -> Outcome:
        """What became of the transaction; UnknownTransaction if the journal does not say, or with
        `number` if it says it of another one that has the id by now.

        Once a write has failed only a decision that was seen before is one: what the disk has of
        the others, the next engine finds out. Of those EngineFailed.
        """
        check_tx_id(tx_id)
        outcome = self._known_outcome(tx_id, number)
        if outcome is None:
            # It may be on its way, from a call that was interrupted or does not wait.
            if not self._idle():
                self._group.flush()
            outcome = self._known_outcome(tx_id, number)
        if outcome is not None:
            return outcome
        with self._group.lock:
            self._refuse_to_guess()
        if self.in_use.is_open(tx_id):
            raise UnknownTransaction(
                f"transaction {tx_id!r} is open and has not been prepared: nothing of it is "
                "in the journal yet"
            )
        raise self._outcomes.unknown(tx_id)

    def check_undecided(self) -> None:
        """Wait for the decisions that are on their way: who is told that one waits may decide on
        his side. EngineFailed if they have failed. One that nobody was deciding is undecided,
        whatever the disk did.
        """
        with self._group.lock:
            soon = any(entry.is_decided_soon for entry in self._ledger.undecided.values())
            if soon:
                self._refuse_to_guess()
        if soon:
            self._group.flush()

    def _refuse_to_guess(self) -> None:
        """Under the lock."""
        if self._group.broken():
            raise self._group.failed_error() from self._group.failure

    def flush(self) -> None:
        """Make durable what is on its way, whoever has planned it."""
        self._group.flush()

    def make_durable(self, sync: bool | None) -> None:
        """What was committed without waiting is durable on return, if `sync` asks for that now."""
        if self.writer.waits(sync) and sync:
            self._group.flush(force=True)

    def _idle(self) -> bool:
        with self._group.lock:
            return self._group.idle()

    def _known_outcome(self, tx_id: str, number: int) -> Outcome | None:
        while True:
            with self._group.lock:
                entry = self._ledger.by_tx_id.get(tx_id)
                if entry is None:
                    break
                _check_number(tx_id, number, entry.tx)
                if not entry.is_decided_soon:
                    return undecided_outcome(entry)
                self._refuse_to_guess()
            # Its decision is on its way, and whoever has made it may have been told so.
            self._group.flush()
        decided = self._outcomes.find(tx_id)
        if decided is None:
            return None
        _check_number(tx_id, number, decided.tx)
        return self._outcomes.outcome(decided)


def _check_number(tx_id: str, number: int, found: int) -> None:
    """UnknownTransaction if what was found is not the transaction of this number; 0: any."""
    if number not in (0, found):
        raise UnknownTransaction(
            f"transaction {tx_id!r} ended so long ago that its id is another one's by now, and the "
            "journal tells of that one alone. Nothing was changed; with a longer "
            "outcome_window_seconds an id is kept for longer."
        )


def check_reason(reason: str) -> None:
    """TypeError, BadName or TooLarge, if no decision can hold it."""
    text_bytes("reason", reason, REASON_BYTES_MAX)
