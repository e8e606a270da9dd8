"""Messages of a session: sent when it commits, by whoever calls `session.commit()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker

from fmq.bind.dialects import SQLITE
from fmq.bind.errors import BindError, InDoubt
from fmq.bind.interface import TransactionFactory
from fmq.bind.sqlalchemy.binding import TransactionMarker, database_of
from fmq.bind.transaction import BoundTransaction
from fmq.tx.buffer import Phase
from fmq.tx.transaction import Transaction

FLUSHES_MAX = 100  # as many as SQLAlchemy tries itself; then its commit raises


def attach(
    sessions: sessionmaker[Any] | scoped_session[Any] | Session,
    engine: TransactionFactory,
    *,
    producer: str | None = None,
    check_after: float | None = None,
) -> Outbox:
    """Have `engine` send what the outbox is given for one of `sessions` when that one commits.

    Messages and rows are there, or neither are, whatever crashes when. The marker table must be
    there already.
    """
    return Outbox(sessions, engine, producer, check_after)


def _refuse_others(sessions: object) -> None:
    """BindError, if these are no sessions whose commit can be followed."""
    of_class = isinstance(sessions, type) and issubclass(sessions, Session)
    if not of_class and not isinstance(sessions, (sessionmaker, scoped_session, Session)):
        kind = type(sessions)
        raise BindError(
            f"a {kind.__module__}.{kind.__qualname__} has no sessions that can be followed: an "
            "outbox is attached to a sessionmaker, a scoped_session or a Session of SQLAlchemy. "
            "Nothing was changed. With sessions of asyncio write `async with "
            "engine.transaction(bind=session) as tx`."
        )


class Outbox:
    """Made by `attach`: messages that follow the transactions of sessions."""

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
        # This registers the producer: later its own session might be in the way.
        engine.transaction(**self._names, bind=SessionBinding(TransactionMarker(database), example))
        event.listen(database.engine, "handle_error", self._failed)
        event.listen(database.engine, "commit", self._committing)
        if database.dialect is SQLITE:
            event.listen(database.engine, "savepoint", _begin_before)
        for name in EVENTS:
            event.listen(sessions, name, getattr(self, f"_{name}"))

    def of(self, session: Session | scoped_session[Any]) -> Transaction:
        """Where to send what is to be there if, and only if, `session` commits.

        It is over when the session's transaction is; ask again for the next one. What was sent
        inside of a savepoint that is rolled back is dropped with it.
        """
        one: Session = session() if isinstance(session, scoped_session) else session
        self._refuse_strange(one)
        if not one.in_transaction():
            one.begin()
        messages = self._messages_of(one)
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
            messages.tx, messages.empty = tx, tx.savepoint()
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
            messages = session.info[self] = _SessionMessages(TransactionMarker(self._database))
        return messages

    # --- what sessions tell ----------------------------------------------------------------------

    def _after_begin(
        self, session: Session, transaction: SessionTransaction, connection: Connection
    ) -> None:
        messages = self._messages_of(session)
        messages.marker.joined(session, transaction, connection)
        self._working[connection] = messages

    def _after_transaction_create(self, session: Session, transaction: SessionTransaction) -> None:
        messages = self._messages_of(session)
        if transaction.nested and messages.tx is not None:
            messages.savepoints[transaction] = messages.tx.savepoint()

    def _after_soft_rollback(self, session: Session, previous: SessionTransaction) -> None:
        # A flush that fails inside of a savepoint says so of itself alone: it takes that with it.
        rolled_back: SessionTransaction | None = previous
        while rolled_back is not None and not rolled_back.nested:
            rolled_back = rolled_back.parent
        if rolled_back is not None:
            self._messages_of(session).back_to(rolled_back)

    def _before_commit(self, session: Session) -> None:
        if session.in_nested_transaction():
            return  # it is only a savepoint
        _flush(session)  # now, as whoever is told of it may send
        messages = self._messages_of(session)
        messages.closing = True
        tx = messages.tx
        if tx is None:
            return
        if not _sends(tx):
            tx.give_up()  # so that sending with it later fails, as nothing is prepared
            messages.tx = None
            return
        connection = session.connection()
        tx.warn_of_loss(messages.marker.read_limits(connection))
        tx.seal()

    def _after_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._messages_of(session).committed = True

    def _after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        """Also of one that was closed, or rolled back, which is no proof that it did not commit."""
        if transaction.parent is None:
            messages = self._messages_of(session)
            del session.info[self]
            messages.end()

    def _committing(self, connection: Connection) -> None:
        """Any way to commit that has not come by here must not leave the messages behind."""
        messages = self._working.get(connection)
        tx = messages.tx if messages is not None else None
        if tx is None or tx.phase is not Phase.OPEN or not _sends(tx):
            return
        # SQLAlchemy would give the connection back to its pool as it is.
        connection.dialect.do_rollback(connection.connection)
        raise BindError(
            f"{self._database.path}: this commit is not that of the session itself, or a savepoint "
            "was open where Session.begin() ended, so the messages would be left behind. Both were "
            "rolled back; end savepoints first, and call session.commit()."
        )

    def _failed(self, context: ExceptionContext) -> InDoubt | None:
        """A statement has failed, which may be COMMIT: the error that says what that means."""
        messages = self._working.get(context.connection) if context.connection else None
        if messages is None or messages.failed:
            return None
        tx, error = messages.tx, context.original_exception
        if tx is None or tx.phase is not Phase.PREPARED:
            return None
        messages.failed = True  # and its end asks, if nobody does here
        if context.statement is not None or messages.marker.said_so(error):
            return None
        return tx.in_doubt(error)


EVENTS = (
    "after_begin",
    "after_transaction_create",
    "after_soft_rollback",
    "before_commit",
    "after_commit",
    "after_transaction_end",
)


class _SessionMessages:
    """One transaction of a session, and what is to be sent with it."""

    def __init__(self, marker: TransactionMarker) -> None:
        self.marker = marker
        self.tx: BoundTransaction | None = None
        self.empty: Callable[[], None] = lambda: None
        self.savepoints: dict[SessionTransaction, Callable[[], None]] = {}
        self.failed = False  # something did after the mark: what COMMIT says proves nothing then
        self.committed = False
        self.closing = False  # it was looked at what is to be sent: a first message comes too late

    def back_to(self, savepoint: SessionTransaction) -> None:
        """It was rolled back, maybe not for the first time; one from before the first message is
        not known here.
        """
        if self.tx is None or self.tx.phase is not Phase.OPEN:
            return
        self.savepoints.get(savepoint, self.empty)()
        names = [*self.savepoints]
        behind = names[names.index(savepoint) + 1 :] if savepoint in self.savepoints else names
        for each in behind:
            self.savepoints[each] = _nothing  # it went with the one around it

    def end(self) -> None:
        """The session's transaction is over."""
        tx = self.tx
        if tx is None:
            return
        if tx.phase is Phase.OPEN:
            tx.give_up()
        elif tx.phase is Phase.PREPARED and self.committed and not self.failed:
            tx.confirm()
        elif tx.phase is Phase.PREPARED:
            tx.ask()


class SessionBinding:
    """A session that begins and ends by itself, as a bound transaction sees it."""

    def __init__(self, marker: TransactionMarker, session: Session) -> None:
        self._marker = marker
        self._session = session
        self.path = marker.database.path
        self.register = marker.database.register
        self.check = marker.database.check
        self.purge = marker.database.purge

    def mark(self, store: str, tx_id: str) -> str:
        self._session.flush()
        return self._marker.mark(self._session.connection(), store, tx_id)

    def begin(self) -> NoReturn:
        self._refuse()

    def commit(self) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise BindError(
            f"{self.path}: this transaction is its session's, so there is no block to begin or "
            "end. Nothing was changed; send, and commit the session."
        )

    def rollback(self) -> None:
        """Whoever has the session does, as the error tells."""

    def rolled_back_for_sure(self) -> bool:
        return False

    def leave(self) -> None:
        """Nothing is left to do."""


def _nothing() -> None:
    """What is left to do for a savepoint that is gone already."""


def _sends(tx: Transaction) -> bool:
    return bool(tx.messages or tx._buffer.acks)


def _flush(session: Session) -> None:
    """All that the session holds, also what comes of flushing it."""
    for _ in range(FLUSHES_MAX):
        if not (session.new or session.dirty or session.deleted):
            break
        session.flush()


def _begin_before(connection: Connection, name: str) -> None:
    """A savepoint comes first: without this, sqlite3 would commit when it is released."""
    driver: Any = connection.connection.dbapi_connection
    if not driver.in_transaction:
        connection.exec_driver_sql("BEGIN")
