# Made of fmq/aio/face/transaction.py by tools/make_faces.py: change that file, and run it.
"""The calls that end a transaction, and what happens at the end of its block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Protocol

from fmq.basics.message import Receipt
from fmq.basics.results import Outcome
from fmq.errors import AlreadyDecided, TransactionError, UnknownTransaction
from fmq.tx.commands.blocks import enter, leave
from fmq.tx.commands.buffer import (
    COMMITTED,
    IN_DOUBT,
    OPEN,
    PREPARED,
    ROLLED_BACK,
    Ackable,
    Phase,
    Receipts,
    TransactionBuffer,
)
from fmq.tx.commands.transaction_content import Owner, TransactionContent


class Coordinator(Owner, Protocol):
    """Carries out the steps of transactions, here, for a loop, or in another process."""

    def commit_at_once(self, transaction: TransactionBuffer, sync: bool | None = None) -> Receipts:
        """Commit an open transaction in one append. Return a function that makes its receipts."""
        ...

    def prepare(self, transaction: TransactionBuffer) -> None:
        """Make an open transaction durable and undecided."""

    def commit_prepared(self, transaction: TransactionBuffer, sync: bool | None = None) -> Receipts:
        """Commit a prepared transaction. Return a function that makes its receipts."""
        ...

    def roll_back_prepared(self, transaction: TransactionBuffer) -> None:
        """Roll back a prepared transaction."""

    def outcome(self, tx_id: str, number: int = 0) -> Outcome:
        """Return what became of a transaction."""
        ...

    def make_durable(self, sync: bool | None) -> None:
        """Wait until the decision of an earlier call that did not wait is durable. Do nothing if
        `sync` says not to wait.
        """

    def quickly(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what `function` returns. The function may ask the engine process, but waits for no
        sync.
        """

    def waits(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` waits for a sync. Raises TypeError."""
        ...

    def makes_durable(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` is durable on its return."""
        ...

    def release(self, transaction: TransactionBuffer) -> None:
        """Let the id of an open transaction be used again."""

    def check_readable(self) -> None:
        """Raise if the engine is closed, so that questions get no answer."""

    def after(self) -> None:
        """Note the end of a call that has written. Chores may run now."""


class Transaction(TransactionContent):
    """A transaction: all of its messages become visible, or none. One user at a time: one thread,
    or one task of a loop.

    As a `with` block it commits at the end of the block. A block that raises rolls back,
    unless it has prepared: then the transaction stays undecided, because the exception says
    nothing about the user's database.
    """

    _manager: Coordinator

    # --- what it is given -------------------------------------------------------------------------

    def ack(self, delivery: Ackable) -> None:
        """Let the commit also ack `delivery`. So consume, transform and produce count
        exactly once.
        """
        self._manager.quickly(self._buffer.ack, delivery)

    def savepoint(self) -> Callable[[], None]:
        """Return a function that drops what was added after the savepoint. The function may be
        called repeatedly.

        Calling it also drops later savepoints: their functions raise WrongState from then on.
        """
        back = self._buffer.savepoint()

        def roll_back() -> None:
            self._manager.quickly(back)

        return roll_back

    # --- its steps --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the transaction durable and undecided. Its messages stay invisible until it is
        decided, and only a decision ends it.
        """
        self._buffer.require(OPEN, "prepare")
        self._step(PREPARED, self._manager.prepare)
        self._manager.after()

    def commit(self, *, sync: bool | None = None) -> list[Receipt]:
        """Show all messages at once, and return their receipts. A second call returns the same
        receipts.

        With `sync=False` the call does not wait, unless 8 MiB are pending: the transaction becomes
        durable, and its messages visible, with the next sync of any call. With `sync=True` it is
        durable on return, whatever the options say.
        """
        self._commit(sync)
        return self._buffer.receipts()

    def _commit(self, sync: bool | None = None) -> None:
        manager, phase = self._manager, self._buffer.phase
        if phase is OPEN:
            take = manager.commit_at_once
        elif self._is_undecided():
            take = manager.commit_prepared
        elif phase is COMMITTED:
            self._wait_until_durable(sync)
            return
        else:
            self._refuse_decision("commit")
        self._sync = sync
        self._step(COMMITTED, take if sync is None else partial(take, sync=sync))
        manager.after()

    def rollback(self) -> None:
        """Drop the transaction. Before prepare nothing was written, and an id that you chose is
        free again.
        """
        phase = self._buffer.phase
        if self._is_undecided():
            self._step(ROLLED_BACK, self._manager.roll_back_prepared)
        elif phase is OPEN or phase is ROLLED_BACK:
            self._manager.quickly(self._drop)
        else:
            self._refuse_decision("rollback")
        self._manager.after()

    def _drop(self) -> None:
        """End an open transaction. What it would have acked is given back."""
        if self._buffer.phase is OPEN:
            self._manager.release(self._buffer)
            self._buffer.phase = ROLLED_BACK
        self._buffer.give_back()

    def _refuse_decision(self, step: str) -> NoReturn:
        """Raise AlreadyDecided if the opposite decision is in the journal, else WrongState."""
        phase = self._buffer.phase
        if phase is COMMITTED or (phase is ROLLED_BACK and self._buffer.was_prepared):
            raise AlreadyDecided(self.outcome())
        self._buffer.refuse(step)

    def _wait_until_durable(self, sync: bool | None) -> None:
        """If this call waits, make durable what an earlier call decided without waiting."""
        manager = self._manager
        manager.waits(sync)  # raises TypeError if `sync` is none of True, False and None
        if not manager.makes_durable(self._sync):
            manager.make_durable(sync)
            self._sync = sync

    def _step(self, after: Phase, take: Callable[[TransactionBuffer], Any]) -> None:
        """Take a step to the phase `after`. If it is refused by a typed error, the transaction is
        as before. After any other exception its bytes may be durable or not.
        """
        buffer = self._buffer
        before = buffer.before_step = buffer.phase
        if before is not OPEN:
            # A step of an open transaction is in doubt only from the moment its append is planned.
            buffer.phase = IN_DOUBT
        try:
            taken = take(buffer)
        except BaseException as error:
            buffer.failed(error)
            raise
        buffer.stepped(after, taken)

    def _is_undecided(self) -> bool:
        """Return whether the transaction can be decided. One whose decision raised may be decided
        again.
        """
        buffer = self._buffer
        return buffer.phase is PREPARED or (buffer.phase is IN_DOUBT and buffer.was_prepared)

    def outcome(self) -> Outcome:
        """Return what became of the transaction, as `engine.outcome` does, once it was prepared or
        committed.
        """
        manager, buffer = self._manager, self._buffer
        manager.check_readable()
        if buffer.phase is ROLLED_BACK and not buffer.was_prepared:
            raise UnknownTransaction(  # the id may belong to another transaction by now
                f"transaction {self.tx_id!r} was rolled back before it was prepared, so nothing of "
                "it is in the journal"
            )
        try:
            return manager.outcome(self.tx_id, buffer.number)
        except OSError:
            manager.check_readable()  # closing the engine also closes its files
            raise

    # --- as a block -------------------------------------------------------------------------------

    def __enter__(self) -> Transaction:
        enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave(self)
        buffer = self._buffer
        phase = buffer.phase
        if error is None:
            if phase is OPEN or phase is PREPARED:
                self._commit_at_end()
            elif phase is IN_DOUBT:
                # A step has failed, and the block went on. Code after it would believe that all is
                # committed.
                buffer.refuse("the end of its block")
        elif phase is OPEN and not buffer.is_in_step:
            self.rollback()
        else:
            self._note_what_becomes_of_it(error)

    def _commit_at_end(self) -> None:
        try:
            self._commit()
        except BaseException as error:
            if self._buffer.phase is OPEN:
                # The commit was refused after the block: no code can try again.
                self.rollback()
            # A TransactionError says by itself what became of the transaction.
            elif not isinstance(error, TransactionError):
                self._note_what_becomes_of_it(error)
            raise
