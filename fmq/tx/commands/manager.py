"""The transaction manager: begins transactions, commits them at once, or prepares them.

A commit is one append. Its last record, COMMIT, publishes the records before it. Decisions on what
was prepared are in decisions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import call
from typing import Any

from fmq.errors import FmqError, TxIdInUse
from fmq.steps.call_steps import Command
from fmq.store.bytes.content import encode_items
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.kinds import PRE_MESSAGE, TX_MESSAGE, Append, Kind, Run
from fmq.store.index.catalog import Catalog
from fmq.tx.commands.appends import one_phase, runs_of, two_phases
from fmq.tx.commands.buffer import Receipts, TransactionBuffer
from fmq.tx.commands.decisions import Decisions
from fmq.tx.commands.ids import IdsInUse, TxIds, new_buffer
from fmq.tx.commands.joint_decisions import JointDecisions
from fmq.tx.commands.limits import Limits
from fmq.tx.commands.marks import check_marks
from fmq.tx.commands.message_ids import MessageIds, in_prepared
from fmq.tx.commands.prepared_bytes import PreparedBytes
from fmq.tx.commands.relocation import relocate_oldest
from fmq.tx.commands.reserve import Reserve
from fmq.tx.commands.router import Router
from fmq.tx.commands.writer import Writer
from fmq.tx.looks.outcomes import Outcomes
from fmq.tx.looks.receipts import receipts_of


class TransactionManager:
    """The transactions of one engine."""

    def __init__(
        self,
        writer: Writer,
        router: Router,
        outcomes: Outcomes,
        catalog: Catalog,
        store: str,
        drawn: bytes,
        check_readable: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        """`store` is the id of the directory, and `drawn` are random bytes for ids.
        `check_readable` raises if the engine is closed. `after` is called at the end of each call
        of a transaction that has written.
        """
        self.store = store
        self.writer = writer
        self._router = router
        self.check_readable = check_readable
        self.after = after
        self._outcomes = outcomes
        self.time_us = writer.clock.time_us
        self._ledger = writer.ledger
        self.commit_queue = self._commit_queue = writer.commit_queue
        options, journal = writer.options, writer.journal
        self._compress_bytes_min = options.compress_bytes_min
        self.limits = Limits(options, journal.append_bytes_max)
        self._ids = TxIds(drawn)
        self.message_ids = MessageIds(writer, catalog)
        self.in_use = IdsInUse(self._ledger, outcomes)
        self._reserve = Reserve(journal.spares, journal.append_bytes_max)
        self._kept = PreparedBytes(options.reference_bytes_min)
        self.decisions = Decisions(writer, outcomes, self.in_use, self._reserve, self._kept)
        self.joint_decisions = JointDecisions(writer, outcomes, self.decisions)
        self.commit_prepared = self.decisions.commit_prepared
        self.confirm_prepared = partial(self.decisions.commit_prepared, posted=True)
        self.roll_back_prepared = self.decisions.roll_back_prepared
        self.outcome, self.make_durable = self.decisions.outcome, self.decisions.make_durable
        self.waits, self.makes_durable = self._commit_queue.waits, writer.makes_durable
        self.release = self.in_use.release
        self.quickly: Callable[..., Any] = call
        # Each makes the command that commits or prepares an open transaction.
        how: Any = TX_MESSAGE, one_phase, self.plan_commit, self._committed
        self.committing: Callable[[TransactionBuffer], Command[Receipts]]
        self.committing = partial(self._command, *how)
        how = PRE_MESSAGE, two_phases, self.plan_prepare, self._prepared
        self.preparing: Callable[[TransactionBuffer], Command[None]]
        self.preparing = partial(self._command, *how)
        for entry in self._ledger.undecided.values():
            entry.prepare.reserved = Reserve.needed_for(measured([entry.prepare, *entry.runs]))
            self._reserve.remember(entry.prepare.reserved)
        self._reserve.make_up()

    # --- begin --------------------------------------------------------------------------------

    def buffer_for(
        self,
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
        *,
        named: bool = True,
        takes_id: bool = True,
    ) -> TransactionBuffer:
        """Return the empty buffer of a new transaction. Raises TxIdInUse if its id is in use.

        An id that is not `named` was drawn by a client, so no other transaction has it. Without
        `takes_id` the id is not checked here: `take_id` does that before the first step.
        """
        what = self.writer, self._router, self.limits, self._ids, self.time_us
        buffer = new_buffer(*what, tx_id, producer, check_after, named=named)
        if buffer.named:
            buffer.must_take_id = not takes_id
            if takes_id:
                self.take_id(buffer)
        return buffer

    def take_id(self, buffer: TransactionBuffer) -> None:
        """Hold the id that the user chose for a transaction. Raises TxIdInUse if it is in use."""
        tx_id = buffer.tx_id
        if self._ids.has_made(tx_id):
            raise TxIdInUse(
                f"transaction {tx_id!r} is one that this engine has named itself; give another one "
                "a name of its own"
            )
        with self._commit_queue.lock:
            self._commit_queue.check()
            self.in_use.hold(buffer)
        try:
            self.in_use.refuse_decided(tx_id)
        except BaseException:
            self.in_use.release(buffer)
            raise

    # --- one phase ------------------------------------------------------------------------------

    def commit_at_once(self, transaction: TransactionBuffer, sync: bool | None = None) -> Receipts:
        """Write TX_MESSAGEs, ACK and COMMIT in one append. Return a function that makes the
        receipts.
        """
        plan, what, done = self.committing(transaction)
        self._commit_queue.run(plan, what, sync)
        return done()

    def _command(
        self,
        kind: Kind,
        make: Callable[[TransactionBuffer, list[Run]], Append],
        plan: Callable[[tuple[TransactionBuffer, Append]], None],
        done: Callable[[TransactionBuffer, Append], Any],
        transaction: TransactionBuffer,
    ) -> Command[Any]:
        """Return the command that writes an open transaction: the records that `make` makes of its
        runs of `kind`.
        """
        runs = runs_of(kind, transaction, self._compress_bytes_min)
        if transaction.encode is encode_items:
            self.message_ids.load_for(runs)
        append = make(transaction, runs)
        return plan, (transaction, append), partial(done, transaction, append)

    def _committed(self, transaction: TransactionBuffer, append: Append) -> Receipts:
        if transaction.named:
            self.in_use.release(transaction)
        return partial(receipts_of, [*append, *transaction.left_out])

    def plan_commit(self, what: tuple[TransactionBuffer, Append]) -> None:
        """Plan the append that commits a transaction at once. The caller holds the engine's
        lock.
        """
        transaction, append = what
        self._check(transaction)
        self.message_ids.leave_out(append, one_phase, transaction)
        commit = append[-1]
        self.writer.send(append, stated=commit)
        transaction.number = commit.tx
        transaction.planned()

    def _check(self, transaction: TransactionBuffer) -> None:
        """Raise the error that refuses the append of an open transaction. The caller holds the
        engine's lock.
        """
        self.in_use.check_unused(transaction.tx_id)
        transaction.check_held()
        if transaction.marks:
            check_marks(self._ledger, transaction.marks)

    # --- two phases -----------------------------------------------------------------------------

    def prepare(self, transaction: TransactionBuffer) -> None:
        """Write PREPARE and PRE_MESSAGEs in one append, durable in every mode."""
        plan, what, done = self.preparing(transaction)
        self._commit_queue.run(plan, what, True)
        done()

    def _prepared(self, transaction: TransactionBuffer, append: Append) -> None:
        self.in_use.release(transaction)

    def plan_prepare(self, what: tuple[TransactionBuffer, Append]) -> None:
        """Plan the append that prepares a transaction. The caller holds the engine's lock."""
        transaction, append = what
        self._check(transaction)
        self.message_ids.leave_out(append, two_phases, transaction)
        prepare = append[0]
        self.limits.check_undecided(self._ledger, prepare)
        size = measured(append)
        prepare.reserved = Reserve.needed_for(size)
        self._reserve.take(prepare.reserved)
        try:
            self.writer.send(append, stated=prepare)
        except FmqError:
            self._reserve.give_back(prepare.reserved)
            raise
        transaction.number = prepare.tx
        transaction.planned()
        runs = self._ledger.undecided[prepare.tx].runs
        if transaction.left_out:
            transaction.left_out = in_prepared(transaction.left_out, runs)
        self._kept.keep(prepare, runs, size)

    def relocate_oldest(self) -> bool:
        """Relocate the oldest undecided transaction if it lies too far back. Return whether
        it did.
        """
        return relocate_oldest(self.writer, self._outcomes, self._reserve.bytes)
