"""A transaction that commits if, and only if, the user's database does.

The order is the whole point: mark, prepare, commit, confirm. The mark is the last statement of
the database's transaction; then the messages become durable, sealed and undecided; then the
database commits; then the messages are shown. Wherever that is interrupted, the mark tells what
is to become of the messages.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

from fmq.bind.errors import DurabilityWarning, InDoubt, NotDurable
from fmq.bind.find import Binding
from fmq.errors import FmqError, LeaseLost, WrongState
from fmq.feedback.service import Feedback
from fmq.message import Outcome, Receipt
from fmq.tx.transaction import Phase, Transaction


class BoundTransaction(Transaction):
    """As a `with` block: begins the database's transaction, and ends both."""

    _binding: Binding
    _feedback: Feedback
    _strict: bool

    def bind(self, binding: Binding, feedback: Feedback, *, strict: bool) -> BoundTransaction:
        self._binding, self._feedback, self._strict = binding, feedback, strict
        return self

    def __enter__(self) -> BoundTransaction:
        try:
            loss = self._binding.begin()
        except BaseException:
            super().rollback()
            raise
        if loss:
            try:
                if self._strict:
                    raise NotDurable(loss)
                warnings.warn(loss, DurabilityWarning, stacklevel=2)
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
                self._give_up()
        finally:
            self._binding.leave()

    def _commit_both(self) -> None:
        try:
            self._binding.mark(self._feedback.store, self.tx_id)
            super().prepare()
        except BaseException:
            self._give_up()
            raise
        try:
            self._binding.commit()
        except BaseException as failed:
            if self._binding.rolled_back_for_sure():
                super().rollback()
                raise
            if not isinstance(failed, Exception):
                failed.add_note(
                    f"fmq: it came while the database committed, so what became of transaction "
                    f"{self.tx_id!r} is asked; engine.outcome({self.tx_id!r}) will tell."
                )
                raise
            raise InDoubt(self.tx_id, failed, self._check_now()) from failed
        super().commit()

    def _give_up(self) -> None:
        """The database was not told to commit, so nothing is in doubt: end both.

        What cannot be rolled back now is rolled back when somebody asks: no mark was committed.
        """
        try:
            self._binding.rollback()
        finally:
            if self.phase in (Phase.OPEN, Phase.PREPARED):
                super().rollback()

    def _check_now(self) -> Outcome | None:
        """Ask on a new connection what the database did; None if it could not be found out."""
        with suppress(FmqError):
            for question in self._feedback.ask_about(self.tx_id):
                with suppress(LeaseLost):
                    return self._feedback.answer(question, self._binding.check(question))
        return None

    def prepare(self) -> NoReturn:
        """Not by hand: the end of the block does it."""
        self._refuse_by_hand("prepare")

    def commit(self) -> list[Receipt]:
        """Only again, for the receipts: the end of the block does it."""
        if self.phase is not Phase.COMMITTED:
            self._refuse_by_hand("commit")
        return super().commit()

    def rollback(self) -> None:
        """Not by hand: an exception that leaves the block does it, fmq.RollBack for one."""
        if self.phase is not Phase.ROLLED_BACK:
            self._refuse_by_hand("rollback")

    def _refuse_by_hand(self, step: str) -> NoReturn:
        raise WrongState(
            f"transaction {self.tx_id!r} is bound to a database, so {step} is not yours: the end "
            "of the block ends both. Nothing was changed; raise fmq.RollBack to drop both."
        )
