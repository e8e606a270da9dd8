"""A transaction as its user sees it: its steps, and what happens at the end of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import NoReturn, Protocol, TypeVar

from fmq.basics.message import Body, Message, Receipt
from fmq.basics.results import Outcome
from fmq.errors import (
    AlreadyDecided,
    EngineFailed,
    OutcomeUnknown,
    TransactionError,
    UnknownTransaction,
)
from fmq.errors.notes import add_note
from fmq.store.bytes.timing import Timing
from fmq.store.journal.commit_queue import CommitQueue
from fmq.store.journal.section import is_refusal
from fmq.tx.commands.blocks import enter, leave
from fmq.tx.commands.buffer import IN_DOUBT, OPEN, Ackable, Phase, TransactionBuffer
from fmq.tx.commands.due import check_due

T = TypeVar("T")

PREPARED, COMMITTED, ROLLED_BACK = Phase.PREPARED, Phase.COMMITTED, Phase.ROLLED_BACK
Receipts = Callable[[], list[Receipt]]


class Coordinator(Protocol):
    """Carries out the steps of transactions: a TransactionManager, here or in another process."""

    @property
    def store(self) -> str:
        """The id of the directory, in hex."""

    @property
    def commit_queue(self) -> CommitQueue | None:
        """The queue that its steps wait for; None if the engine is in another process."""

    @property
    def time_us(self) -> Callable[[], int]:
        """A function that returns the time by the clock on the wall, in microseconds."""

    def commit_at_once(self, transaction: TransactionBuffer, sync: bool | None = None) -> Receipts:
        """Commit an open transaction in one append. Return a function that makes its receipts."""

    def prepare(self, transaction: TransactionBuffer) -> None:
        """Make an open transaction durable and undecided."""

    def commit_prepared(self, transaction: TransactionBuffer, sync: bool | None = None) -> Receipts:
        """Commit a prepared transaction. Return a function that makes its receipts."""

    def confirm_prepared(self, transaction: TransactionBuffer) -> Receipts:
        """Commit a prepared transaction without waiting. Return a function that makes its
        receipts.
        """

    def roll_back_prepared(self, transaction: TransactionBuffer) -> None:
        """Roll back a prepared transaction."""

    def release(self, transaction: TransactionBuffer) -> None:
        """Let the id of an open transaction be used again."""

    def outcome(self, tx_id: str, number: int = 0) -> Outcome:
        """Return what became of a transaction."""

    def waits(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` waits for a sync. Raises TypeError."""

    def makes_durable(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` is durable on its return."""

    def make_durable(self, sync: bool | None) -> None:
        """Make an earlier decision durable that was not waited for, if a call with this `sync`
        waits.
        """

    def check_open(self) -> None:
        """Raise if the engine is closed, so that questions get no answer."""

    def after(self) -> None:
        """Note the end of a call that has written. It may run chores."""


class TransactionContent:
    """What a transaction is given, and how far it has come. No call here waits, so they are the
    same on a loop.
    """

    def __init__(self, buffer: TransactionBuffer, time_us: Callable[[], int]) -> None:
        """`time_us` returns the time by the clock on the wall."""
        self._buffer = buffer
        self._time_us = time_us

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # Each of two copies would commit under the same id.
        raise TypeError(f"transaction {self.tx_id!r} cannot be copied or pickled; begin another")

    @property
    def tx_id(self) -> str:
        """The id by which the transaction can be asked about."""
        return self._buffer.tx_id

    @property
    def producer(self) -> str:
        """The name whose checkers are asked about it; empty if it has none."""
        return self._buffer.producer

    @property
    def messages(self) -> int:
        """The number of messages that were added."""
        return self._buffer.messages

    @property
    def phase(self) -> Phase:
        """How far it has come: open, prepared, committed, rolled back or in doubt."""
        return self._buffer.phase

    # --- what it is given -----------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue: int | None = None,
        message_id: str | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Add a message. No reader sees it before the commit.

        With `delay`, in seconds from now, or `deliver_at` no reader sees it before that time.
        """
        timing = None
        if delay is not None or deliver_at is not None:
            timing = self._due(delay, deliver_at)
        self._buffer.send(
            topic, body, key, tag, headers, queue, message_id, priority, expires_at, timing
        )

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        *,
        queue: int | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Add several messages, given as bodies or Messages: all of them, or none if one is
        refused.
        """
        self._buffer.send_many(topic, bodies, queue, self._due(delay, deliver_at))

    def _due(self, delay: float | None, deliver_at: datetime | None) -> Timing | None:
        if delay is None and deliver_at is None:
            return None
        return check_due(delay, deliver_at, self._time_us())

    def mark(self, name: str, value: int, data: bytes = b"", expect: int | None = None) -> None:
        """Let the commit also set the mark `name` to `value`, a u64, and up to 64 bytes of `data`.

        With `expect`, the step that writes raises MarkMoved unless the mark has the value `expect`
        at that time. -1 means that the mark must not exist. MarkMoved is also raised if another
        undecided transaction changes the mark.
        """
        self._buffer.change_mark("mark", lambda marks: marks.set(name, value, data, expect))

    def unmark(self, name: str, expect: int | None = None) -> None:
        """Let the commit also remove the mark `name`. `expect` is as in `mark`."""
        self._buffer.change_mark("unmark", lambda marks: marks.remove(name, expect))

    # --- how it ends ----------------------------------------------------------------------------

    def _note_what_becomes_of_it(self, error: BaseException) -> None:
        """Add a note to `error` that says what becomes of the transaction whose block it leaves."""
        if self.phase is Phase.PREPARED:
            add_note(
                error,
                f"transaction {self.tx_id!r} was prepared before this exception and stays "
                "undecided, because the exception says nothing about your database. Decide it "
                f"with engine.decide({self.tx_id!r}, 'commit' or 'rollback'), unless a checker has "
                f"done so already: engine.outcome({self.tx_id!r}) tells.",
            )
        elif self.phase is IN_DOUBT:
            add_note(
                error,
                f"what became of transaction {self.tx_id!r} is not known here; "
                f"engine.outcome({self.tx_id!r}) tells, if need be after opening again.",
            )

    def __repr__(self) -> str:
        return f"<Transaction {self.tx_id} {self.phase.value}, {self.messages} messages>"


class Transaction(TransactionContent):
    """A transaction: all of its messages become visible, or none. One thread at a time uses it.

    As a context manager it commits at the end of the block. A block that raises rolls back,
    unless it has prepared: then the transaction stays undecided, because the exception says
    nothing about the user's database.
    """

    def __init__(self, manager: Coordinator, buffer: TransactionBuffer) -> None:
        super().__init__(buffer, manager.time_us)
        self._manager = manager
        self._was_prepared = False
        # The `sync=` that its commit was given.
        self._sync: bool | None = None
        self._receipts: Receipts = list

    # --- what it is given -----------------------------------------------------------------------

    def ack(self, delivery: Ackable) -> None:
        """Let the commit also ack `delivery`. So consume, transform and produce count
        exactly once.
        """
        self._buffer.ack(delivery)

    def savepoint(self) -> Callable[[], None]:
        """Return a function that drops what was added after the savepoint. It may be called
        repeatedly.

        Calling it also drops later savepoints: their functions raise WrongState from then on.
        """
        return self._buffer.savepoint()

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

        With `sync=False` the call does not wait: the transaction becomes durable, and its messages
        visible, with the next sync of any call. With `sync=True` it is durable on return, whatever
        the options say.
        """
        self._commit(sync)
        return self._receipts()

    def _commit(self, sync: bool | None = None) -> None:
        manager = self._manager
        if self.phase is OPEN:
            take = manager.commit_at_once
        elif self._is_undecided():
            take = manager.commit_prepared
        elif self.phase is COMMITTED:
            self._wait_until_durable(sync)
            return
        else:
            self._refuse_decision("commit")
        self._sync = sync
        self._receipts = self._step(COMMITTED, take if sync is None else partial(take, sync=sync))
        manager.after()

    def _commit_posted(self) -> None:
        """Commit a prepared transaction without waiting. If a crash loses this decision, a checker
        makes it again: the database has the marker.
        """
        if not self._is_undecided():
            self._commit()
            return
        self._sync = False  # a later commit() has to wait until it is durable
        self._receipts = self._step(COMMITTED, self._manager.confirm_prepared)
        self._manager.after()

    def rollback(self) -> None:
        """Drop the transaction. Before prepare nothing was written, and an id that you chose is
        free again.
        """
        manager, buffer = self._manager, self._buffer
        if self._is_undecided():
            self._step(ROLLED_BACK, manager.roll_back_prepared)
            buffer.leave_acks_to_the_journal()
        elif self.phase is OPEN:
            manager.release(buffer)
            buffer.phase = ROLLED_BACK
        elif self.phase is not ROLLED_BACK:
            self._refuse_decision("rollback")
        buffer.give_back()
        manager.after()

    def _refuse_decision(self, step: str) -> NoReturn:
        """Raise AlreadyDecided if the opposite decision is in the journal, else WrongState."""
        if self.phase is COMMITTED or (self.phase is ROLLED_BACK and self._was_prepared):
            raise AlreadyDecided(self.outcome())
        self._buffer.refuse(step)

    def _wait_until_durable(self, sync: bool | None) -> None:
        """If this call waits, make an earlier decision durable that did not wait."""
        manager = self._manager
        manager.waits(sync)  # raises TypeError if `sync` is none of True, False and None
        if not manager.makes_durable(self._sync):
            manager.make_durable(sync)
            self._sync = sync

    def _step(self, after: Phase, take: Callable[[TransactionBuffer], T]) -> T:
        """Take a step to the phase `after`. If it is refused by a typed error, the transaction is
        as before. After any other exception its bytes may be durable or not.
        """
        stepping = Stepping(self, after)
        try:
            taken = take(self._buffer)
        except BaseException as error:
            stepping.failed(error)
            raise
        stepping.done()
        return taken

    def _is_undecided(self) -> bool:
        """Return whether the transaction can be decided. One whose decision raised may be decided
        again.
        """
        return self.phase is PREPARED or (self.phase is IN_DOUBT and self._was_prepared)

    def outcome(self) -> Outcome:
        """Return what became of the transaction, as `engine.outcome` does, once it was prepared or
        committed.
        """
        manager = self._manager
        manager.check_open()
        if self.phase is ROLLED_BACK and not self._was_prepared:
            raise UnknownTransaction(  # the id may belong to another transaction by now
                f"transaction {self.tx_id!r} was rolled back before it was prepared, so nothing of "
                "it is in the journal"
            )
        try:
            return manager.outcome(self.tx_id, self._buffer.number)
        except OSError:
            manager.check_open()  # closing the engine also closes its files
            raise

    # --- as a block -------------------------------------------------------------------------------

    def __enter__(self) -> Transaction:
        enter(self)
        return self

    def _taking(self, store: str | None) -> Transaction | None:
        """Return this transaction while its block runs, if it belongs to `store` (see blocks.py).

        If it was prepared inside of its block, later sends are refused. Sending them outside of it
        would break the promise that both happen or none.
        """
        if self.phase is COMMITTED or self.phase is ROLLED_BACK:
            return None
        return self if store is None or store == self._manager.store else None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave(self)
        if error is None:
            if self.phase is OPEN or self.phase is PREPARED:
                self._commit_at_end()
            elif self.phase is IN_DOUBT:
                # A step has failed, and the block went on. Code after it would believe that all is
                # committed.
                self._buffer.refuse("the end of its block")
        elif self.phase is OPEN:
            self.rollback()
        else:
            self._note_what_becomes_of_it(error)

    def _commit_at_end(self) -> None:
        try:
            self._commit()
        except BaseException as error:
            if self.phase is OPEN:
                self.rollback()  # the commit was refused after the block: no code can try again
            # Such an error says itself what became of it.
            elif not isinstance(error, TransactionError):
                self._note_what_becomes_of_it(error)
            raise


class Stepping:
    """One step of a transaction, from its beginning to its result. It sets the phase."""

    __slots__ = ("_after", "_before", "_transaction")

    def __init__(self, transaction: Transaction, after: Phase) -> None:
        self._transaction = transaction
        self._after = after
        self._before = before = transaction._buffer.phase
        if before is not OPEN:
            # A step of an open transaction is in doubt only from the moment its append is planned.
            transaction._buffer.phase = IN_DOUBT

    def refused(self) -> None:
        """Note that the step was refused: the transaction is as it was before."""
        self._transaction._buffer.refused(self._before)

    def done(self) -> None:
        """Note that the step was taken."""
        transaction = self._transaction
        transaction._buffer.phase = self._after
        if self._after is PREPARED:
            transaction._was_prepared = True

    def failed(self, error: BaseException) -> None:
        """Note that the step has raised `error`."""
        if is_refusal(error) and not isinstance(error, (EngineFailed, OutcomeUnknown)):
            self.refused()


B = TypeVar("B", bound=Transaction)


class Beginner(Coordinator, Protocol):
    """Begins transactions, and carries out their steps."""

    def begin(
        self,
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
        make: type[B] = ...,
    ) -> B:
        """Return a new transaction. Raises TxIdInUse if its id is in use."""
