"""A transaction as its user holds it: its steps, and what becomes of it at the end of a block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from fmq.errors import (
    AlreadyDecided,
    EngineFailed,
    TransactionError,
    UnknownTransaction,
    add_note,
)
from fmq.message import Receipt
from fmq.results import Outcome
from fmq.store.section import is_refusal
from fmq.tx.buffer import IN_DOUBT, OPEN, Phase, TransactionBuffer

if TYPE_CHECKING:
    from fmq.tx.manager import TransactionManager

T = TypeVar("T")

PREPARED, COMMITTED = Phase.PREPARED, Phase.COMMITTED
Receipts = Callable[[], list[Receipt]]


class Transaction(TransactionBuffer):
    """Many messages, topics and queues: all or nothing. One thread at a time uses it.

    As a context manager it commits at the end of the block. A block that raises rolls back,
    unless it has prepared: then the transaction stays undecided, because the exception says
    nothing about the user's database.
    """

    bound = False  # to a database, which has a mark if it committed: see fmq.bind
    number = 0  # the position of its PREPARE or, in one phase, of its first record; 0: none yet
    _prepared = False
    _sync: bool | None = None  # what its end was given: whether that was waited for

    def __init__(
        self,
        manager: TransactionManager,
        tx_id: str,
        producer: str,
        check_after_ms: int,
        *,
        named: bool,
    ) -> None:
        """`named` says whether the user gave the id, so that somebody may ask for it again."""
        TransactionBuffer.__init__(self, manager.writer, manager.limits, tx_id, producer)
        self._manager = manager
        self.check_after_ms = check_after_ms
        self.named = named
        self._receipts: Receipts = list

    def prepare(self) -> None:
        """Make it durable and sealed: invisible, undecided, and never ended silently."""
        self._require(OPEN, "prepare")
        self._step(PREPARED, self._manager.prepare)
        self._manager.after()

    def commit(self, *, sync: bool | None = None) -> list[Receipt]:
        """Show all messages at once; again, the same receipts.

        With `sync=False` that becomes durable, and the messages visible, with the next sync of
        anybody; with `sync=True` it is durable on return whatever the options say.
        """
        self._commit(sync)
        return self._receipts()

    def _commit(self, sync: bool | None = None) -> None:
        manager = self._manager
        if self.phase is OPEN:
            take = manager.commit_at_once
        elif self._undecided():
            take = manager.decisions.commit_prepared
        elif self.phase is COMMITTED:
            self._wait_for_it(sync)
            return
        else:
            self._refuse_decision("commit")
        self._sync = sync
        self._receipts = self._step(COMMITTED, take if sync is None else partial(take, sync=sync))
        after = manager.after
        after()

    def rollback(self, *, sync: bool | None = None) -> None:
        """Drop it. Before prepare nothing is written, and the id, if you gave it, is free again.

        `sync` says, as that of `commit`, whether the roll back of a prepared one is waited for.
        """
        decisions = self._manager.decisions
        self._writer.commit_queue.waits(sync)  # or a TypeError, in any phase
        if self._undecided():
            self._sync = sync
            self._step(Phase.ROLLED_BACK, partial(decisions.roll_back_prepared, sync=sync))
            self.ackables.clear()  # they come again when ROLLBACK is applied, and not before
        elif self.phase is OPEN:
            self._end_room()
            self._manager.in_use.let_go(self)
            self.phase = Phase.ROLLED_BACK
        elif self.phase is not Phase.ROLLED_BACK:
            self._refuse_decision("rollback")
        elif self._prepared:
            self._wait_for_it(sync)
        self._give_back()
        self._manager.after()

    def _refuse_decision(self, step: str) -> NoReturn:
        """AlreadyDecided, with the outcome, where the opposite one is in the journal."""
        if self.phase is COMMITTED or (self.phase is Phase.ROLLED_BACK and self._prepared):
            raise AlreadyDecided(self.outcome())
        self._refuse(step)

    def _wait_for_it(self, sync: bool | None) -> None:
        """It has ended by a call that may not have waited; now it is durable, if this one waits."""
        self._writer.commit_queue.waits(sync)  # or a TypeError
        if not self._writer.makes_durable(self._sync):
            self._manager.decisions.make_durable(sync)
            self._sync = sync

    def _step(self, after: Phase, take: Callable[[Transaction], T]) -> T:
        """Take a step to `after`. A typed refusal leaves everything as it was; anything else may
        have come before or after the bytes were durable.
        """
        self._end_room()
        before = self.phase
        if before is not OPEN:
            self.phase = IN_DOUBT  # an open one is in doubt once its append is planned
        try:
            result = take(self)
        except EngineFailed:
            raise
        except BaseException as error:
            if is_refusal(error):
                self.refused(before)
            raise
        self.phase = after
        if after is PREPARED:
            self._prepared = True
        return result

    def _undecided(self) -> bool:
        """Whether it was prepared; a decision whose call did not return may be made again."""
        return self.phase is PREPARED or (self.phase is IN_DOUBT and self._prepared)

    def outcome(self) -> Outcome:
        """What has become of it, as `engine.outcome` says; once it is prepared or committed."""
        manager = self._manager
        manager.check_open()
        if self.phase is Phase.ROLLED_BACK and not self._prepared:
            raise UnknownTransaction(  # and not what became of another one that took its id
                f"transaction {self.tx_id!r} was rolled back before it was prepared, so nothing of "
                "it is in the journal"
            )
        try:
            return manager.decisions.outcome(self.tx_id, self.number)
        except OSError:
            manager.check_open()  # closed since then, and its files with it
            raise

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            if self.phase is OPEN or self.phase is PREPARED:
                self._commit_at_end()
            elif self.phase is IN_DOUBT:
                # The block has kept to itself what a step of it raised. Whoever goes on behind it
                # would take the transaction for committed.
                self._refuse("the end of its block")
        elif self.phase is OPEN:
            self.rollback()
        else:
            self._say_what_becomes_of_it(error)

    def _commit_at_end(self) -> None:
        try:
            self._commit()
        except BaseException as error:
            if self.phase is OPEN:
                self.rollback()  # refused, and nobody is left who could try again
            elif not isinstance(error, TransactionError):  # such a one says itself what became
                self._say_what_becomes_of_it(error)
            raise

    def _say_what_becomes_of_it(self, error: BaseException) -> None:
        """In a note on `error`, which leaves the block, unless the transaction is over."""
        if self.phase is PREPARED:
            add_note(
                error,
                f"transaction {self.tx_id!r} was prepared before this exception and stays "
                "undecided, because the exception says nothing about your database. Decide it "
                f"with engine.decide({self.tx_id!r}, 'commit' or 'rollback'), unless a checker or "
                f"somebody else has done so already: engine.outcome({self.tx_id!r}) tells.",
            )
        elif self.phase is IN_DOUBT:
            add_note(
                error,
                f"what became of transaction {self.tx_id!r} is not known here; "
                f"engine.outcome({self.tx_id!r}) tells, if need be after opening again.",
            )

    def __repr__(self) -> str:
        return f"<Transaction {self.tx_id} {self.phase.value}, {self.messages} messages>"
