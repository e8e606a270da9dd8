"""A transaction that commits if, and only if, the user's database does.

The order of the four steps is what makes it safe. The *marker* is the last statement of the
database's transaction. *Prepare* makes the messages durable, sealed and undecided. *Commit* is that
of the database. *Confirm* makes the messages visible: it is posted, so no sync is waited for. After
a crash between any two steps, or before the confirmation is durable, a checker reads from the
marker what to decide.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Protocol

from fmq.basics.message import Receipt
from fmq.basics.results import Outcome
from fmq.bind.bind_errors import (
    DurabilityWarning,
    InDoubt,
    NotDurable,
    mark_in_other_schema,
    wrong_with_statement,
)
from fmq.bind.checker import for_bound_only
from fmq.bind.interface import Binding
from fmq.errors import AlreadyDecided, TransactionError, WrongState
from fmq.errors.notes import add_note
from fmq.feedback.service import Feedback
from fmq.store.journal.commit_queue import CommitQueue
from fmq.tx.commands.blocks import enter, leave
from fmq.tx.commands.buffer import Phase, Receipts, TransactionBuffer
from fmq.tx.commands.transaction import Coordinator, Transaction
from fmq.tx.commands.transaction_content import TransactionContent


class BoundCoordinator(Coordinator, Protocol):
    """Carries out the steps of bound transactions, too."""

    @property
    def commit_queue(self) -> CommitQueue | None:
        """The queue that its steps wait for; None if the engine is in another process."""

    def confirm_prepared(self, transaction: TransactionBuffer) -> Receipts:
        """Commit a prepared transaction without waiting. Return a function that makes its
        receipts.
        """


class BoundTransaction(Transaction):
    """A `with` block that begins the database's transaction, and ends both transactions."""

    _manager: BoundCoordinator
    _binding: Binding
    _feedback: Feedback
    _strict: bool
    _place: str
    _on_commit: Callable[[], None]
    _ends = False  # True once the end of the block has begun

    def bind(
        self,
        binding: Binding,
        feedback: Feedback,
        place: str,
        on_commit: Callable[[], None],
        *,
        strict: bool,
    ) -> BoundTransaction:
        """Tie this transaction to `binding`, and return it.

        `place` is where the checker looks for the marker. `on_commit` is called after the commit.
        """
        self._buffer.bound = True
        self._on_commit = on_commit
        self._binding, self._feedback, self._strict = binding, feedback, strict
        self._place = place
        return self

    def __enter__(self) -> BoundTransaction:
        try:
            loss = self._binding.begin()
        except BaseException:
            self._free_id()
            raise
        try:
            self.warn_of_loss(loss)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        enter(self)
        return self

    def _taking(self, store: str | None) -> TransactionContent | None:
        """Return this transaction while its block runs, and while the end of the block flushes.

        Once it is prepared at the end, what the database's own callbacks send is not part of it.
        """
        if self._ends and self.phase is not Phase.OPEN:
            return None
        return super()._taking(store)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._ends = True
                self._commit_both()
            else:
                leave(self)  # messages that are sent during the rollback would be lost
                self.give_up()
        finally:
            leave(self)
            self._binding.leave()

    def _commit_both(self) -> None:
        self.seal()
        try:
            self._binding.commit()
        except BaseException as failed:
            if self._binding.rolled_back_for_sure():
                super().rollback()
                raise
            doubt = self.in_doubt(failed)
            if doubt is None:
                raise
            raise doubt from failed
        self.confirm()

    async def __aenter__(self) -> BoundTransaction:
        self._free_id()
        raise wrong_with_statement("with", "one that blocks")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        raise AssertionError("it was not entered")

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to send, ack or mark."""
        return self._buffer.is_empty

    # --- the steps, which an outbox calls from the events of its session -------------------------

    def warn_of_loss(self, loss: str) -> None:
        """Warn that the database may lose commits; raise NotDurable instead if the binding is
        strict. `loss` is the reason. Do nothing if it is empty.
        """
        if loss and self._strict:
            raise NotDurable(loss)
        if loss:
            warnings.warn(loss, DurabilityWarning, stacklevel=3)

    def seal(self) -> None:
        """Insert the marker, and prepare. If that fails, roll back both transactions."""
        self._buffer.require(Phase.OPEN, "prepare")
        try:
            if self._binding.insert_marker(self._feedback.store, self.tx_id) != self._place:
                raise mark_in_other_schema(self._binding.path, self.producer)
            super().prepare()
        except BaseException:
            self.give_up()
            raise

    def confirm(self) -> None:
        """Post the commit, after the database has committed. The messages become visible in a
        moment.
        """
        try:
            self.commit_posted()
        except BaseException as error:
            if isinstance(error, AlreadyDecided):
                add_note(
                    error,
                    "the database has committed its rows, so the two disagree: somebody decided "
                    f"transaction {self.tx_id!r} by hand meanwhile. `fmq reconcile` finds such "
                    "transactions; send the messages again, or take the rows back.",
                )
            elif not isinstance(error, TransactionError):
                add_note(
                    error,
                    f"the database has committed, and the messages of transaction "
                    f"{self.tx_id!r} are not visible yet. It is undecided until the database is "
                    "asked, by this engine's checkers or fmq.open(resolve=...).",
                )
            raise
        self._on_commit()

    def commit_posted(self) -> None:
        """Commit without waiting. If a crash loses this decision, a checker makes it again: the
        database has the marker.
        """
        if not self._is_undecided():
            self._commit()
            return
        self._sync = False  # a later commit() has to wait until this commit is durable
        self._step(Phase.COMMITTED, self._manager.confirm_prepared)
        self._manager.after()

    def in_doubt(self, failed: BaseException) -> InDoubt | None:
        """Return the error for a database commit that raised and may have happened nevertheless.

        It holds what a check finds at once. For an interrupt, return None, add a note to `failed`
        and leave the check to the checkers.
        """
        if isinstance(failed, Exception):
            return InDoubt(self.tx_id, failed, self.ask())
        add_note(
            failed,
            f"it came while the database committed, so the checkers ask what became of transaction "
            f"{self.tx_id!r}; engine.outcome({self.tx_id!r}) returns it then.",
        )
        return None

    def _free_id(self) -> None:
        """Free the tx_id of a transaction whose block has not begun."""
        super().rollback()

    def give_up(self) -> None:
        """Roll back both transactions, before the database's commit has begun.

        If that fails after the prepare, a checker rolls back later, as no marker was committed.
        """
        try:
            self._binding.rollback()
        finally:
            if self.phase in (Phase.OPEN, Phase.PREPARED):
                super().rollback()

    def ask(self) -> Outcome | None:
        """Ask the database on a new connection, and decide. Return None if it does not answer."""
        with suppress(Exception):  # the feedback service asks again, and reports the error
            for question in self._feedback.ask_about(self.tx_id):
                return self._feedback.answer(
                    question, for_bound_only(self._binding.check)(question)
                )
        return None

    # --- steps that the program must not call -----------------------------------------------------

    def prepare(self) -> NoReturn:
        """Raise WrongState, because the end of the block prepares."""
        self._refuse_by_hand("prepare")

    def commit(self, *, sync: bool | None = None) -> list[Receipt]:
        """Return the receipts after the block has committed. Raises WrongState before."""
        if self.phase is not Phase.COMMITTED:
            self._refuse_by_hand("commit")
        return super().commit(sync=sync)

    def rollback(self) -> None:
        """Do nothing if the transaction is rolled back. Else raise WrongState: the program should
        raise fmq.RollBack.
        """
        if self.phase is not Phase.ROLLED_BACK:
            self._refuse_by_hand("rollback")

    def _refuse_by_hand(self, step: str) -> NoReturn:
        raise WrongState(
            f"transaction {self.tx_id!r} is bound to a database, so your program must not call "
            f"{step}: the end of the block ends both. Nothing was changed; raise fmq.RollBack to "
            "drop both."
        )
