"""A Session or Connection of SQLAlchemy in one transaction: marking it, committing it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError, UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from fmq.bind.dialects import BLOCK_SAVEPOINT, POSTGRES, SQLITE, is_gone, rolled_back_by_server
from fmq.bind.errors import (
    BindError,
    each_by_itself,
    ended_inside,
    not_the_blocks,
    unusable,
    work_open,
)
from fmq.bind.interface import Binding
from fmq.bind.sqlalchemy.database import SqlAlchemyDatabase


class SqlAlchemyBinding:
    """One session or connection, for one transaction that begins and ends with its block."""

    def __init__(self, bound: Session | Connection | scoped_session[Any]) -> None:
        self._bound: Session | Connection = bound() if isinstance(bound, scoped_session) else bound
        if isinstance(bound, Connection) and bound.closed:
            raise unusable("it is closed.")
        self._marker = TransactionMarker(database_of(self._bound))
        self._transaction: object = None
        self._certain = False
        self.path = self._marker.database.path
        self.register = self._marker.database.register
        self.check = self._marker.database.check  # the checkers keep it, and so not the session
        self.purge = self._marker.database.purge

    def begin(self) -> str:
        """Begin the database's transaction, in SQLite with the right to write; what may take back
        its commits, or nothing.
        """
        bound = self._bound
        if bound.in_transaction():
            raise work_open(self.path)
        if isinstance(bound, Session):
            event.listen(bound, "after_begin", self._marker.joined)
        try:
            self._transaction = bound.begin()
            return self._marker.begin(_connection_of(bound))
        except BaseException:
            self.rollback()
            self.leave()
            raise

    def mark(self, store: str, tx_id: str) -> str:
        """The last statement of the database's transaction; Fenced if it comes too late. Where."""
        bound = self._bound
        if bound.get_transaction() is not self._transaction:
            raise ended_inside(self.path, tx_id)
        if isinstance(bound, Session):
            bound.flush()
        while nested := bound.get_nested_transaction():
            nested.commit()  # the mark is at the outermost level
        return self._marker.mark(_connection_of(bound), store, tx_id)

    def commit(self) -> None:
        if isinstance(self._bound, Session):
            # Behind all listeners of the program's: one that swallows an error leaves a transaction
            # that PostgreSQL rolls back at COMMIT, and reports as committed.
            event.listen(self._bound, "before_commit", _ask_whether_alive)
        try:
            self._bound.commit()
        except BaseException as error:
            self._certain = self._marker.rolled_back_for_sure(error)
            with suppress(Exception):  # what may still be open; what has committed stays
                self._bound.rollback()
            raise

    def rolled_back_for_sure(self) -> bool:
        """After a commit that failed: whether it is certain that it did not happen."""
        return self._certain

    def rollback(self) -> None:
        """Drop what the database's transaction has done; a lost connection has done so itself."""
        try:
            self._bound.rollback()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise

    def leave(self) -> None:
        """Listen no more."""
        for name, listener in (
            ("after_begin", self._marker.joined),
            ("before_commit", _ask_whether_alive),
        ):
            if event.contains(self._bound, name, listener):
                event.remove(self._bound, name, listener)


def _ask_whether_alive(session: Session) -> None:
    """The database's error if it would take no further statement."""
    session.connection().exec_driver_sql("SELECT 1")


class TransactionMarker:
    """What one transaction does in one database, whoever begins and ends it."""

    def __init__(self, database: SqlAlchemyDatabase) -> None:
        self.database = database
        self._deadline = 0
        self._began = ""
        self._begun = False  # sqlite3 is in a transaction, and has to be at the end
        self._elsewhere = False
        self._root: Any = None
        self._driver: Any = None

    def joined(
        self, session: Session, transaction: SessionTransaction, connection: Connection
    ) -> None:
        """The session begins on a connection, perhaps to a database that knows no mark."""
        if connection.dialect is not self.database.engine.dialect:
            self._elsewhere = True

    def begin(self, connection: Connection) -> str:
        """Have the driver begin as well: sqlite3 would wait for the first statement that writes,
        and end the transaction with a savepoint that comes before it.
        """
        loss = self.read_limits(connection)
        self._begun = self.database.dialect is SQLITE
        if self._begun and not _driver_of(connection).in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        if self._begun:
            connection.exec_driver_sql(f"SAVEPOINT {BLOCK_SAVEPOINT}")
        return loss

    def read_limits(self, connection: Connection) -> str:
        """Refuse one that commits each statement; what may take back its commits, or nothing."""
        path, kind = self.database.path, self.database.dialect
        driver: Any = connection.connection.dbapi_connection
        if kind is SQLITE and getattr(driver, "autocommit", None) is True:
            raise not_the_blocks(path, True)
        each = connection.dialect.detect_autocommit_setting(driver)
        # In SQLite the program may have a hook that begins.
        if each and not (kind is SQLITE and _driver_of(connection).in_transaction):
            raise each_by_itself(path)
        self._deadline, self._began, loss = kind.deadline(connection.exec_driver_sql, path)
        return loss

    def mark(self, connection: Connection, store: str, tx_id: str) -> str:
        """The last statement of the transaction; Fenced if it comes too late. Where it is."""
        if self._elsewhere:
            raise BindError(
                f"{self.database.path}: the session works in another database, too, whose part "
                f"would not be tied to transaction {tx_id!r}. Nothing was committed; use a "
                "session for each database."
            )
        if self._begun:
            self._require_begun(connection, tx_id)
        self._root = connection.get_transaction()
        self._driver = _driver_of(connection)
        began, place = self.database.mark(connection, store, tx_id, self._deadline)
        if began != self._began:
            raise ended_inside(self.database.path, tx_id)
        return place

    def _require_begun(self, connection: Connection, tx_id: str) -> None:
        try:
            connection.exec_driver_sql(f"RELEASE {BLOCK_SAVEPOINT}")
        except OperationalError as error:
            if is_gone(error.orig):
                raise ended_inside(self.database.path, tx_id) from None
            raise

    def rolled_back_for_sure(self, error: BaseException) -> bool:
        """After a commit that failed: whether it is certain that it did not happen."""
        if self._root is not None and self._root.is_active:
            return True  # it was not tried: something before it has failed
        return self.said_so(getattr(error, "orig", None))

    def said_so(self, error: BaseException | None) -> bool:
        """Whether the driver's error of COMMIT says itself that it did not happen."""
        if self.database.dialect is SQLITE:
            return bool(self._driver.in_transaction)  # still open, so it has not committed
        if self.database.dialect is POSTGRES:
            # psycopg and most others; psycopg2 has its own word for it.
            state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
            return rolled_back_by_server(state)
        return False


def database_of(given: Session | scoped_session[Any] | Connection | Engine) -> SqlAlchemyDatabase:
    """The one database of a session, connection or engine, also of one of asyncio."""
    bound: Any = getattr(given, "sync_session", None) or getattr(given, "sync_engine", given)
    if isinstance(bound, (Session, scoped_session)):
        try:
            found = bound.get_bind()
        except UnboundExecutionError:
            raise BindError(
                "the session has no engine for all that it does, so there is no one database to "
                "bind. Nothing was changed; use a session for each database, with bind=engine."
            ) from None
        if isinstance(found, Connection):
            raise BindError(
                "the session works on a connection that was handed to it, whose transaction may "
                "not be its own. Nothing was changed; bind the connection, or give the session "
                "an engine."
            )
        return SqlAlchemyDatabase(found)
    return SqlAlchemyDatabase(bound if isinstance(bound, Engine) else bound.engine)


def _connection_of(bound: Session | Connection) -> Connection:
    return bound if isinstance(bound, Connection) else bound.connection()


def _driver_of(connection: Connection) -> Any:
    return connection.connection.driver_connection


def create_table(bound: Session | scoped_session[Any] | Connection | Engine) -> None:
    """Make the marker table if it is not there, on a connection of its own."""
    database_of(bound).create_table()


def purge(
    bound: Session | scoped_session[Any] | Connection | Engine,
    store: str,
    undecided: frozenset[str],
    older_seconds: float,
) -> int:
    """Remove markers that nobody can ask about any more; how many."""
    return database_of(bound).purge(store, undecided, older_seconds)


def binding(bound: Any) -> Binding:
    """What ties it to a transaction; one of asyncio comes as a bridge to it."""
    if hasattr(bound, "run_sync"):
        from fmq.bind.sqlalchemy.on_loop import (
            AsyncSqlAlchemyBinding,  # here: asyncio is slow to import
        )

        return AsyncSqlAlchemyBinding(bound)
    return SqlAlchemyBinding(bound)
