"""The transaction manager: begins transactions, commits them at once, or prepares them.

A commit is one append. Its last record, COMMIT, publishes the records before it. Decisions on what
was prepared are in decisions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fmq.errors import BadOption, FmqError, TxIdInUse
from fmq.store.journal import Append
from fmq.store.kinds import PRE_MESSAGE, TX_MESSAGE, Decided
from fmq.tx.appends import one_phase, prepare_of, preparing, runs_of
from fmq.tx.buffer import TransactionBuffer
from fmq.tx.decisions import Decisions
from fmq.tx.ids import IdsInUse, TxIds
from fmq.tx.limits import Limits
from fmq.tx.names import check_name, check_seconds, check_tx_id
from fmq.tx.outcomes import Outcomes
from fmq.tx.prepared_bytes import PreparedBytes
from fmq.tx.relocation import relocate_oldest
from fmq.tx.reserve import Reserve, size_of_all
from fmq.tx.sender import receipts_of
from fmq.tx.transaction import Receipts, Transaction
from fmq.tx.writer import Writer

T = TypeVar("T", bound=Transaction)
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
        """`check_open` raises if the engine answers no questions any more. `after` is called at the
        end of each call of a transaction that has written.
        """
        self.writer = writer
        self.check_open = check_open
        self.after = after
        self._outcomes = outcomes
        self._ledger = writer.ledger
        self._commit_queue = writer.commit_queue
        options, journal = writer.options, writer.journal
        self._compress_bytes_min = options.compress_bytes_min
        self.limits = Limits(options, journal.append_bytes_max)
        self._ids = TxIds(drawn)
        self.in_use = IdsInUse(self._ledger, writer.frontier, outcomes)
        self._reserve = Reserve(journal.spares, journal.append_bytes_max)
        self._kept = PreparedBytes(options.reference_bytes_min)
        self.decisions = Decisions(writer, outcomes, self.in_use, self._reserve, self._kept)
        for entry in self._ledger.undecided.values():
            entry.prepare.reserved = Reserve.needed_for(size_of_all([entry.prepare, *entry.runs]))
            self._reserve.remember(entry.prepare.reserved)
        self._reserve.make_up()

    # --- begin --------------------------------------------------------------------------------

    def begin(
        self,
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
        make: type[T] = Transaction,  # type: ignore[assignment]
    ) -> T:
        """Return a new transaction; raise TxIdInUse if its id is in use."""
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
            return make(self, self._buffer(made, producer, check_after_ms, named=False))
        tx_id = check_tx_id(tx_id)
        if self._ids.has_made(tx_id):
            raise TxIdInUse(
                f"transaction {tx_id!r} is one that this engine has named itself; give another one "
                "a name of its own"
            )
        buffer = self._buffer(tx_id, producer, check_after_ms, named=True)
        with self._commit_queue.lock:
            self._commit_queue.check()
            self.in_use.hold(buffer)
        try:
            self.in_use.refuse_decided(tx_id)
        except BaseException:
            self.in_use.release(buffer)
            raise
        return make(self, buffer)

    def _buffer(
        self, tx_id: str, producer: str | None, check_after_ms: int, *, named: bool
    ) -> TransactionBuffer:
        return TransactionBuffer(
            self.writer, self.limits, tx_id, producer or "", check_after_ms, named=named
        )

    # --- one phase ------------------------------------------------------------------------------

    def commit_at_once(self, transaction: TransactionBuffer, sync: bool | None = None) -> Receipts:
        """Write TX_MESSAGEs, ACK and COMMIT in one append; return how to get the receipts."""
        runs = runs_of(TX_MESSAGE, transaction, self._compress_bytes_min)
        append = Append(one_phase(transaction, runs))
        self._commit_queue.run(self._plan_at_once, (transaction, append), sync)
        if transaction.named:
            self.in_use.release(transaction)
        return partial(receipts_of, runs)

    def _plan_at_once(self, what: tuple[TransactionBuffer, Append]) -> None:
        transaction, append = what
        self.in_use.check_unused(transaction.tx_id)
        self.writer.frontier.check_marks(transaction.marks)
        records = append.records
        commit: Decided = records[-1]
        # The number of a transaction in one phase is the position of its first record.
        number = self.writer.place(append)
        transaction.planned()
        for record in records:
            record.tx = number
        commit.prepared_us, commit.append_start = commit.time_us, append.position
        self.writer.append(append)
        transaction.number = number
        frontier = self.writer.frontier
        if transaction.marks:
            frontier.add_marks(transaction.marks.changes())
        if transaction.named:
            frontier.add_commit(transaction.tx_id)

    # --- two phases -----------------------------------------------------------------------------

    def prepare(self, transaction: TransactionBuffer) -> None:
        """Write PREPARE and PRE_MESSAGEs in one append, durable in every mode."""
        tx_id, writer, in_use = transaction.tx_id, self.writer, self.in_use
        runs = runs_of(PRE_MESSAGE, transaction, self._compress_bytes_min)
        prepare = prepare_of(transaction, runs)
        records: list[Any] = preparing(prepare, runs)

        def plan(append: Append) -> None:
            in_use.check_unused(tx_id)
            writer.frontier.check_marks(transaction.marks)
            self.limits.check_open(self._ledger, writer.frontier.preparing(), prepare)
            prepare.reserved = Reserve.needed_for(append.size)
            self._reserve.take(prepare.reserved)
            try:
                number = writer.place(append)
            except FmqError:
                self._reserve.give_back(prepare.reserved)
                raise
            transaction.planned()
            prepare.tx, prepare.prepared_us = number, prepare.time_us
            for record in records[1:]:
                record.tx = number
            writer.append(append)
            self._kept.keep(prepare, runs, append.size)
            transaction.number = number
            writer.frontier.add_prepare(prepare)

        self._commit_queue.run(plan, Append(records), True)
        in_use.release(transaction)

    def relocate_oldest(self) -> bool:
        """Relocate the oldest undecided transaction if it is too old; return whether it was."""
        return relocate_oldest(self.writer, self._outcomes, self._reserve.bytes)
