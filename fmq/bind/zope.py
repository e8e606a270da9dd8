"""A data manager for the `transaction` package: messages that the current transaction sends.

With a session of SQLAlchemy they are bound to it: mark and prepare are this one's vote, which
comes right before that of zope.sqlalchemy, whose vote is the database's commit; the end of both
shows the messages. Without one, the messages are committed when everybody else has voted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import transaction
from sqlalchemy import event
from sqlalchemy.orm import Session, scoped_session
from zope.sqlalchemy import mark_changed

from fmq import Engine, Transaction
from fmq.bind.errors import BindError
from fmq.bind.sqlalchemy.binding import Side, database_of
from fmq.bind.sqlalchemy.events import Following
from fmq.bind.transaction import BoundTransaction
from fmq.tx.buffer import Phase

NUMBERS = count()  # who joins first is first in the queues


def join(
    engine: Engine,
    session: Session | scoped_session[Any] | None = None,
    *,
    tx_id: str | None = None,
    producer: str | None = None,
    check_after: float | None = None,
    manager: Any = transaction.manager,
) -> Transaction:
    """A transaction to send with, which ends as the current one of `manager` does.

    With `session`, messages and rows are there, or neither is, whatever crashes.
    """
    current = manager.get()
    names: Any = {"tx_id": tx_id, "producer": producer, "check_after": check_after}
    if session is None:
        tx: Transaction = engine.transaction(**names)
        current.join(Alone(tx, manager))
        return tx
    session = session() if isinstance(session, scoped_session) else session
    if not isinstance(session, Session):
        raise BindError(
            f"{session!r}: what is joined is a Session or scoped_session of SQLAlchemy, which "
            "zope.sqlalchemy commits. Nothing was begun."
        )
    if session.twophase:
        raise BindError(
            "the session commits in two phases, and what is between them would be decided by "
            "nobody. Nothing was begun; make the session without twophase=True: one database and "
            "messages need no second phase."
        )
    side = Side(database_of(session))
    bound = engine.transaction(bind=Following(side, session), **names)
    assert isinstance(bound, BoundTransaction)
    current.join(Bound(bound, side, session, manager))
    current.addBeforeCommitHook(_have_it_commit, (session, manager, bound))
    return bound


def _have_it_commit(session: Session, manager: Any, tx: Transaction) -> None:
    """zope.sqlalchemy commits only what it knows to be written, and the mark is not yet."""
    if tx.phase is Phase.OPEN:
        session.connection()  # begins, so that it joins as its program has registered it
        mark_changed(session, transaction_manager=manager)


class Bound:
    """Votes by mark and prepare, and knows by the session's commit how it ends."""

    def __init__(self, tx: BoundTransaction, side: Side, session: Session, manager: Any) -> None:
        self.transaction_manager = manager
        self._number = next(NUMBERS)
        self._tx = tx
        self._side = side
        self._session = session
        self._committed = False
        self._listeners: dict[str, Callable[..., Any]] = {
            "after_begin": side.joined,
            "after_commit": self._has_committed,
        }
        for name, listener in self._listeners.items():
            event.listen(session, name, listener)

    def sortKey(self) -> str:  # noqa: N802
        # Before "~sqlalchemy", which commits by its vote, and behind all others that may refuse.
        return f"~fmq:{self._number:012}"

    def savepoint(self) -> Savepoint:
        return Savepoint(self._tx.savepoint())

    def abort(self, transaction: object) -> None:
        self._stop_listening()
        if self._tx.phase is Phase.OPEN:
            self._tx.give_up()

    def tpc_begin(self, transaction: object) -> None:
        """Sessions write what they hold at this, so the mark is not due before the vote."""

    def commit(self, transaction: object) -> None:
        """Messages are made durable by the vote."""

    def tpc_vote(self, transaction: object) -> None:
        self._tx.heed(self._side.look_at(self._session.connection()))
        self._tx.seal()

    def _has_committed(self, session: Session) -> None:
        self._committed = self._tx.phase is Phase.PREPARED

    def tpc_finish(self, transaction: object) -> None:
        """Show the messages; what prevents that is logged, as everybody has committed."""
        self._stop_listening()
        try:
            if self._committed:
                self._tx.confirm()
            else:
                self._tx.ask()  # the session did not take part in this transaction
        except Exception:
            logging.getLogger("fmq.bind.zope").exception(
                "transaction %r: the database has committed, and its messages could not be shown "
                "now. They are safe, and are shown when its checker is asked.",
                self._tx.tx_id,
            )

    def tpc_abort(self, transaction: object) -> None:
        """After the vote nobody here knows what the database did, so it is asked."""
        self.abort(transaction)
        if self._tx.phase is Phase.PREPARED:
            self._tx.ask()

    def _stop_listening(self) -> None:
        for name, listener in self._listeners.items():
            event.remove(self._session, name, listener)
        self._listeners.clear()


class Alone:
    """Commits in one phase, by its vote, as the last one."""

    def __init__(self, tx: Transaction, manager: Any) -> None:
        self.transaction_manager = manager
        self._number = next(NUMBERS)
        self._tx = tx

    def sortKey(self) -> str:  # noqa: N802
        return f"~~fmq:{self._number:012}"

    def savepoint(self) -> Savepoint:
        return Savepoint(self._tx.savepoint())

    def abort(self, transaction: object) -> None:
        if self._tx.phase is Phase.OPEN:
            self._tx.rollback()

    def tpc_begin(self, transaction: object) -> None:
        """Nothing is written before the vote."""

    def commit(self, transaction: object) -> None:
        """Nothing is written before the vote."""

    def tpc_vote(self, transaction: object) -> None:
        self._tx.commit()

    def tpc_finish(self, transaction: object) -> None:
        """It has committed."""

    def tpc_abort(self, transaction: object) -> None:
        self.abort(transaction)


class Savepoint:
    """Where a transaction stood."""

    def __init__(self, back: Callable[[], None]) -> None:
        self.rollback = back
