"""A transaction that commits if, and only if, the user's database does.

The order is the whole point: mark, prepare, commit, confirm. The mark is the last statement of
the database's transaction; then the messages become durable, sealed and undecided; then the
database commits; then the messages are shown. Wherever that is interrupted, the mark tells what
is to become of the messages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

from fmq.bind.checker import for_bound_only
from fmq.bind.errors import (
    DurabilityWarning,
    InDoubt,
    NotDurable,
    marked_elsewhere,
    wrong_with,
)
from fmq.bind.interface import Binding
from fmq.errors import TransactionError, WrongState, add_note
from fmq.feedback.service import Feedback
from fmq.message import Receipt
from fmq.results import Outcome
from fmq.tx.buffer import Phase
from fmq.tx.transaction import Transaction


class BoundTransaction(Transaction):
    """As a `with` block: begins the database's transaction, and ends both."""

    _binding: Binding
    _feedback: Feedback
    _strict: bool
    _place: str
    _ended: Callable[[], None]

    def bind(
        self,
        binding: Binding,
        feedback: Feedback,
        place: str,
        ended: Callable[[], None],
        *,
        strict: bool,
    ) -> BoundTransaction:
        """`place` is where in its database the checker looks; `ended` is called when it is over."""
        self._buffer.bound = True
        self._ended = ended
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
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._commit_both()
            else:
                self.give_up()
        finally:
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
        raise wrong_with("with", "one that blocks")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        raise AssertionError("it was never entered")

    # --- the steps, also for whoever is told of them by events of the database's driver ----------

    def warn_of_loss(self, loss: str) -> None:
        """Warn of what may take back the database's commits, if something may; or refuse it."""
        if loss and self._strict:
            raise NotDurable(loss)
        if loss:
            warnings.warn(loss, DurabilityWarning, stacklevel=3)

    def seal(self) -> None:
        """Mark, as the last statement of the database's transaction, and prepare."""
        self._buffer.require(Phase.OPEN, "prepare")
        try:
            if self._binding.mark(self._feedback.store, self.tx_id) != self._place:
                raise marked_elsewhere(self._binding.path, self.producer)
            super().prepare()
        except BaseException:
            self.give_up()
            raise

    def confirm(self) -> None:
        """The database has committed: show the messages."""
        try:
            super().commit()
        except BaseException as error:
            if not isinstance(error, TransactionError):
                add_note(
                    error,
                    f"the database has committed, and the messages of transaction "
                    f"{self.tx_id!r} are not shown yet: it is undecided until the database is asked"
                    ", by this engine's checkers or fmq.open(resolve=...).",
                )
            raise
        self._ended()

    def in_doubt(self, failed: BaseException) -> InDoubt | None:
        """The database's commit failed, and may have happened: the error that says so, and what
        was found out at once. None if the program is told to end: the checkers will ask.
        """
        if isinstance(failed, Exception):
            return InDoubt(self.tx_id, failed, self.ask())
        add_note(
            failed,
            f"it came while the database committed, so what became of transaction "
            f"{self.tx_id!r} is asked; engine.outcome({self.tx_id!r}) will tell.",
        )
        return None

    def _free_id(self) -> None:
        """Nothing has begun: its id is free again."""
        super().rollback()

    def give_up(self) -> None:
        """The database was not told to commit, so nothing is in doubt: end both.

        What cannot be rolled back now is rolled back when somebody asks: no mark was committed.
        """
        try:
            self._binding.rollback()
        finally:
            if self.phase in (Phase.OPEN, Phase.PREPARED):
                super().rollback()

    def ask(self) -> Outcome | None:
        """Ask on a new connection what the database did; None if it could not be found out."""
        with suppress(Exception):  # the checkers go on asking, and tell what is in the way
            for question in self._feedback.ask_about(self.tx_id):
                return self._feedback.answer(
                    question, for_bound_only(self._binding.check)(question)
                )
        return None

    # --- not by hand ----------------------------------------------------------------------------

    def prepare(self) -> NoReturn:
        """Not by hand: the end of the block does it."""
        self._refuse_by_hand("prepare")

    def commit(self, *, sync: bool | None = None) -> list[Receipt]:
        """Only again, for the receipts: the end of the block does it."""
        if self.phase is not Phase.COMMITTED:
            self._refuse_by_hand("commit")
        return super().commit(sync=sync)

    def rollback(self, *, sync: bool | None = None) -> None:
        """Not by hand: an exception that leaves the block does it, fmq.RollBack for one."""
        if self.phase is not Phase.ROLLED_BACK:
            self._refuse_by_hand("rollback")

    def _refuse_by_hand(self, step: str) -> NoReturn:
        raise WrongState(
            f"transaction {self.tx_id!r} is bound to a database, so {step} is not yours: the end "
            "of the block ends both. Nothing was changed; raise fmq.RollBack to drop both."
        )
