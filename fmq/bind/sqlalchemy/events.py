"""An outbox for SQLAlchemy sessions: it sends a session's messages when the session commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.orm import (
    ORMExecuteState,
    Session,
    SessionTransaction,
    SessionTransactionOrigin,
    scoped_session,
    sessionmaker,
)

from fmq.bind.bind_errors import BindError, InDoubt
from fmq.bind.bound_transaction import BoundTransaction
from fmq.bind.dialects import SQLITE
from fmq.bind.interface import TransactionFactory
from fmq.bind.joined import JoinedBinding
from fmq.bind.sqlalchemy.binding import TransactionMarker, database_of
from fmq.tx.commands.blocks import enter, leave
from fmq.tx.commands.buffer import Phase
from fmq.tx.commands.transaction import Transaction
from fmq.tx.commands.transaction_content import TransactionContent

FLUSHES_MAX = 100  # after as many flushes SQLAlchemy raises an error


def attach(
    sessions: sessionmaker[Any] | scoped_session[Any] | Session,
    engine: TransactionFactory,
    *,
    producer: str | None = None,
    check_after: float | None = None,
) -> Outbox:
    """Return an outbox that sends messages through `engine` when one of `sessions` commits.

    After any crash both the rows and the messages are there, or neither. The database must have the
    marker table already.
    """
    return Outbox(sessions, engine, producer, check_after)


def _refuse_others(sessions: object) -> None:
    """Raise BindError if `sessions` is neither a session nor a maker of sessions."""
    of_class = isinstance(sessions, type) and issubclass(sessions, Session)
    if not of_class and not isinstance(sessions, (sessionmaker, scoped_session, Session)):
        found = type(sessions)
        raise BindError(
            f"a {found.__module__}.{found.__qualname__} has no sessions that can be followed: an "
            "outbox is attached to a sessionmaker, a scoped_session or a Session of SQLAlchemy. "
            "Nothing was changed. With sessions of asyncio write `async with "
            "engine.transaction(bind=session) as tx`."
        )


class Outbox:
    """Holds messages of sessions, and sends them when the sessions commit. `attach` makes it."""

    def __init__(
        self,
        sessions: sessionmaker[Any] | scoped_session[Any] | Session,
        engine: TransactionFactory,
        producer: str | None,
        check_after: float | None,
    ) -> None:
        self._sessions = sessions
        self._engine = engine
        self._names: dict[str, Any] = {"producer": producer, "check_after": check_after}
        self._working: WeakKeyDictionary[Connection, _SessionMessages] = WeakKeyDictionary()
        _refuse_others(sessions)
        example = sessions if isinstance(sessions, Session) else sessions()
        self._database = database = database_of(example)
        # Register the producer now: later, an open session could lock the table.
        engine.transaction(**self._names, bind=SessionBinding(TransactionMarker(database), example))
        event.listen(database.engine, "handle_error", self._failed)
        event.listen(database.engine, "commit", self._committing)
        if database.dialect is SQLITE:
            event.listen(database.engine, "savepoint", _begin_before)
        for name in EVENTS:
            event.listen(sessions, name, getattr(self, f"_{name}"))

    def of(self, session: Session | scoped_session[Any]) -> Transaction:
        """Return a transaction to send with, which commits if, and only if, `session` does.

        It ends with the session's transaction. Call this again for the next one. Rolling back a
        savepoint of the session drops the messages that were sent inside of it.
        """
        one: Session = session() if isinstance(session, scoped_session) else session
        self._refuse_strange(one)
        if not one.in_transaction():
            one.begin()
        return self._transaction_of(one, self._messages_of(one))

    def _transaction_of(self, one: Session, messages: _SessionMessages) -> BoundTransaction:
        if messages.tx is None:
            if messages.closing:
                raise BindError(
                    f"{self._database.path}: the session is being committed, or was, and nothing "
                    "was to be sent with it, so this message comes too late. It was not sent; "
                    "send from what the session's flush calls, or before the commit. If the "
                    "commit has failed, roll back first."
                )
            tx = self._engine.transaction(**self._names, bind=SessionBinding(messages.marker, one))
            assert isinstance(tx, BoundTransaction)
            messages.tx, messages.drop_all = tx, tx.savepoint()
        return messages.tx

    def _refuse_strange(self, session: Session) -> None:
        makers = self._sessions
        if isinstance(makers, scoped_session):
            makers = makers.session_factory
        if isinstance(makers, sessionmaker):
            ours = isinstance(session, makers.class_)
        else:
            ours = session is makers or (isinstance(makers, type) and isinstance(session, makers))
        if not ours:
            raise BindError(
                f"{session!r} is not one of those that this outbox is attached to, so its commit "
                "would send nothing. Nothing was sent; attach its sessionmaker."
            )

    def _messages_of(self, session: Session) -> _SessionMessages:
        messages: _SessionMessages | None = session.info.get(self)
        if messages is None:
            marker = TransactionMarker(self._database)
            messages = session.info[self] = _SessionMessages(marker, self, session)
        return messages

    # --- events of sessions ----------------------------------------------------------------------

    def _after_begin(
        self, session: Session, transaction: SessionTransaction, connection: Connection
    ) -> None:
        messages = self._messages_of(session)
        messages.marker.note_connection(session, transaction, connection)
        self._working[connection] = messages

    def _after_transaction_create(self, session: Session, transaction: SessionTransaction) -> None:
        messages = self._messages_of(session)
        if transaction.parent is None:
            enter(messages)
        if transaction.nested and messages.tx is not None:
            messages.savepoints[transaction] = messages.tx.savepoint()

    def _after_flush(self, session: Session, flush: object) -> None:
        self._messages_of(session).has_changed = True

    def _do_orm_execute(self, statement: ORMExecuteState) -> None:
        if statement.is_insert or statement.is_update or statement.is_delete:
            self._messages_of(statement.session).has_changed = True

    def _after_soft_rollback(self, session: Session, previous: SessionTransaction) -> None:
        # A flush that fails rolls back the savepoint around it, but the event names only the flush.
        rolled_back: SessionTransaction | None = previous
        while rolled_back is not None and not rolled_back.nested:
            rolled_back = rolled_back.parent
        if rolled_back is not None:
            self._messages_of(session).back_to(rolled_back)

    def _before_commit(self, session: Session) -> None:
        if session.in_nested_transaction():
            return  # only a savepoint has ended, and not the transaction
        _flush(session)  # flush now, because flush events of the program may send messages
        messages = self._messages_of(session)
        messages.closing = True
        tx = messages.tx
        if tx is None:
            return
        if tx.is_empty:
            tx.give_up()  # nothing is prepared, so later sends of this session must fail
            messages.tx = None
            return
        connection = session.connection()
        tx.warn_of_loss(messages.marker.note_beginning(connection))
        tx.seal()

    def _after_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._messages_of(session).committed = True

    def _after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        """End the messages, too. A session that rolled back does not prove that its COMMIT
        failed.
        """
        if transaction.parent is None:
            messages = self._messages_of(session)
            del session.info[self]
            leave(messages)
            messages.end()

    def _committing(self, connection: Connection) -> None:
        """Refuse a COMMIT that did not pass `_before_commit`, because it would lose the
        messages.
        """
        messages = self._working.get(connection)
        tx = messages.tx if messages is not None else None
        if tx is None or tx.phase is not Phase.OPEN or tx.is_empty:
            return
        # Without this rollback SQLAlchemy would return the connection to its pool with the
        # transaction open.
        connection.dialect.do_rollback(connection.connection)
        raise BindError(
            f"{self._database.path}: this commit is not that of the session itself, or a savepoint "
            "was open where Session.begin() ended, so the messages would be lost. Both were "
            "rolled back; end savepoints first, and call session.commit()."
        )

    def _failed(self, context: ExceptionContext) -> InDoubt | None:
        """Return InDoubt for a COMMIT that failed and may have happened, else None."""
        messages = self._working.get(context.connection) if context.connection else None
        if messages is None or messages.failed:
            return None
        tx, error = messages.tx, context.original_exception
        if tx is None or tx.phase is not Phase.PREPARED:
            return None
        messages.failed = True  # `end` asks the database, unless the next lines do
        if context.statement is not None or messages.marker.proves_rollback(error):
            return None
        return tx.in_doubt(error)


EVENTS = (
    "after_begin",
    "after_transaction_create",
    "after_flush",
    "do_orm_execute",
    "after_soft_rollback",
    "before_commit",
    "after_commit",
    "after_transaction_end",
)


class _SessionMessages:
    """The messages that are to commit with one transaction of a session."""

    def __init__(self, marker: TransactionMarker, outbox: Outbox, session: Session) -> None:
        self._outbox = outbox
        # A weak reference: a session that the program drops returns its connection at once.
        self._session = ref(session)
        self.marker = marker
        self.tx: BoundTransaction | None = None
        self.drop_all: Callable[[], None] = lambda: None
        self.savepoints: dict[SessionTransaction, Callable[[], None]] = {}
        # True once a statement failed after the marker. Then the result of COMMIT proves nothing.
        self.failed = False
        self.committed = False
        self.closing = False  # True once the commit has begun: a first message is too late
        self.has_changed = False  # True once a flush or a statement has changed rows

    def _taking(self, store: str | None) -> TransactionContent | None:
        """Return the transaction of a session that has begun or changed something, so that a send
        goes to it.

        SQLAlchemy begins one for a read, too. Often nothing commits that, so what is sent in it
        would be lost.
        """
        tx = self.tx
        if tx is not None:
            return tx._taking(store) if tx.phase is Phase.OPEN else None
        session = self._session()
        if session is None or self.closing or not self._is_meant(session):
            return None
        outbox = self._outbox
        if store is not None and store != outbox._engine.feedback.store:
            return None
        return outbox._transaction_of(session, self)

    def _is_meant(self, session: Session) -> bool:
        begun = session.get_transaction()
        if begun is None:
            return False
        has_begun = begun.origin is SessionTransactionOrigin.BEGIN
        return (
            has_begun or self.has_changed or bool(session.new or session.dirty or session.deleted)
        )

    def back_to(self, savepoint: SessionTransaction) -> None:
        """Drop the messages sent since `savepoint`, which was rolled back.

        It may have been set before the first message. It may be rolled back more than once.
        """
        if self.tx is None or self.tx.phase is not Phase.OPEN:
            return
        self.savepoints.get(savepoint, self.drop_all)()
        names = [*self.savepoints]
        later = names[names.index(savepoint) + 1 :] if savepoint in self.savepoints else names
        for each in later:
            self.savepoints[each] = _nothing  # the end of the outer savepoint has removed this one

    def end(self) -> None:
        """Confirm, roll back or ask, according to how the session's transaction ended."""
        tx = self.tx
        if tx is None:
            return
        if tx.phase is Phase.OPEN:
            tx.give_up()
        elif tx.phase is Phase.PREPARED and self.committed and not self.failed:
            tx.confirm()
        elif tx.phase is Phase.PREPARED:
            tx.ask()


class SessionBinding(JoinedBinding):
    """The binding of a session that begins and commits on its own."""

    ended_by = "session"

    def __init__(self, marker: TransactionMarker, session: Session) -> None:
        self._marker = marker
        self._session = session
        self.path = marker.database.path
        self.register = marker.database.register
        self.check = marker.database.check
        self.purge = marker.database.purge

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Insert the marker as the last statement, and return where it lies."""
        self._session.flush()
        return self._marker.insert_marker(self._session.connection(), store, tx_id)


def _nothing() -> None:
    """Do nothing, because the savepoint does not exist any more."""


def _flush(session: Session) -> None:
    """Flush the session until its flush events add nothing more."""
    for _ in range(FLUSHES_MAX):
        if not (session.new or session.dirty or session.deleted):
            break
        session.flush()


def _begin_before(connection: Connection, name: str) -> None:
    """Begin a transaction before a savepoint. Otherwise sqlite3 commits when the savepoint is
    released.
    """
    driver: Any = connection.connection.dbapi_connection
    if not driver.in_transaction:
        connection.exec_driver_sql("BEGIN")
