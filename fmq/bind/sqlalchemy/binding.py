"""Bind a Session or Connection of SQLAlchemy to a transaction."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError, UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from fmq.bind.bind_errors import (
    BindError,
    in_autocommit,
    made_with_autocommit,
    transaction_ended,
    transaction_open,
    unusable_connection,
)
from fmq.bind.dialects import (
    BLOCK_SAVEPOINT,
    POSTGRES,
    SQLITE,
    Beginning,
    is_gone,
    rolled_back_by_server,
)
from fmq.bind.sqlalchemy.database import SqlAlchemyDatabase


class SqlAlchemyBinding:
    """One session or connection, for one transaction that fmq's block begins and ends."""

    def __init__(self, bound: Session | Connection | scoped_session[Any]) -> None:
        self._bound: Session | Connection = bound() if isinstance(bound, scoped_session) else bound
        if isinstance(bound, Connection) and bound.closed:
            raise unusable_connection("it is closed.")
        self._marker = TransactionMarker(database_of(self._bound))
        self._transaction: object = None
        self._certain = False
        self.path = self._marker.database.path
        self.register = self._marker.database.register
        # A method of the database, so that checkers do not keep this binding alive.
        self.check = self._marker.database.check
        self.purge = self._marker.database.purge

    def begin(self) -> str:
        """Begin the database's transaction, in SQLite with the right to write.

        Return a warning if its commits may be lost, or "".
        """
        bound = self._bound
        if bound.in_transaction():
            raise transaction_open(self.path)
        if isinstance(bound, Session):
            event.listen(bound, "after_begin", self._marker.note_connection)
        try:
            self._transaction = bound.begin()
            return self._marker.begin(_connection_of(bound))
        except BaseException:
            self.rollback()
            self.leave()
            raise

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Insert the marker as the last statement, and return where it lies.

        Raises Fenced if a checker has ruled the transaction out, or the deadline is over.
        """
        bound = self._bound
        if bound.get_transaction() is not self._transaction:
            raise transaction_ended(self.path, tx_id)
        if isinstance(bound, Session):
            bound.flush()
        while nested := bound.get_nested_transaction():
            nested.commit()  # insert the marker outside of all savepoints
        return self._marker.insert_marker(_connection_of(bound), store, tx_id)

    def commit(self) -> None:
        """Commit. If that fails, remember whether the error proves a rollback."""
        if isinstance(self._bound, Session):
            # Run after all listeners of the program. If one of them swallows an error, PostgreSQL
            # rolls back at COMMIT and reports success. SQLite may have rolled back at once.
            event.listen(self._bound, "before_commit", self._marker.check_alive)
        try:
            self._bound.commit()
        except BaseException as error:
            self._certain = self._marker.rolled_back_for_sure(error)
            with suppress(Exception):  # the transaction may still be open
                self._bound.rollback()
            raise

    def rolled_back_for_sure(self) -> bool:
        """Return whether a commit that raised certainly did not happen."""
        return self._certain

    def rollback(self) -> None:
        """Roll back the database's transaction. A lost connection has done so itself."""
        try:
            self._bound.rollback()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise

    def leave(self) -> None:
        """Remove the listeners from the session."""
        for name, listener in (
            ("after_begin", self._marker.note_connection),
            ("before_commit", self._marker.check_alive),
        ):
            if event.contains(self._bound, name, listener):
                event.remove(self._bound, name, listener)


# libpq's number for a transaction without a failed statement. psycopg knows it without asking.
IN_TRANSACTION = 2


class TransactionMarker:
    """Inserts the marker of one transaction, which a block or a session begins and ends."""

    def __init__(self, database: SqlAlchemyDatabase) -> None:
        self.database = database
        self._beginning = Beginning(0, "", "")
        self._tx_id = ""
        self._has_savepoint = False  # True once the savepoint of the block is set (SQLite only)
        self._elsewhere = False
        self._root: Any = None
        self._driver: Any = None

    def note_connection(
        self, session: Session, transaction: SessionTransaction, connection: Connection
    ) -> None:
        """Note whether the session has begun on a connection to another database."""
        if connection.dialect is not self.database.engine.dialect:
            self._elsewhere = True

    def begin(self, connection: Connection) -> str:
        """Begin in the driver, too. Return a warning if commits may be lost; else "".

        By itself sqlite3 begins only at the first statement that writes. A savepoint released
        before that would commit.
        """
        loss = self.note_beginning(connection)
        self._has_savepoint = self.database.dialect is SQLITE
        if self._has_savepoint and not _driver_of(connection).in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        if self._has_savepoint:
            connection.exec_driver_sql(f"SAVEPOINT {BLOCK_SAVEPOINT}")
        return loss

    def note_beginning(self, connection: Connection) -> str:
        """Read what the marker needs. Return a warning if commits may be lost; else "".

        Raises BindError for a connection in autocommit.
        """
        path, dialect = self.database.path, self.database.dialect
        driver: Any = connection.connection.dbapi_connection
        if dialect is SQLITE and getattr(driver, "autocommit", None) is True:
            raise made_with_autocommit(path, True)
        each = connection.dialect.detect_autocommit_setting(driver)
        # In SQLite, a hook of the program may have begun a transaction already.
        if each and not (dialect is SQLITE and _driver_of(connection).in_transaction):
            raise in_autocommit(path)
        self._beginning = dialect.begin(connection.exec_driver_sql, path)
        return self._beginning.loss

    def insert_marker(self, connection: Connection, store: str, tx_id: str) -> str:
        """Insert the marker as the last statement, and return where it lies."""
        if self._elsewhere:
            raise BindError(
                f"{self.database.path}: the session works in another database, too, whose part "
                f"would not be tied to transaction {tx_id!r}. Nothing was committed; use a "
                "session for each database."
            )
        self._tx_id = tx_id
        if self._has_savepoint:
            self._release_savepoint(connection, tx_id)
        self._root = connection.get_transaction()
        self._driver = _driver_of(connection)
        inserted = self.database.insert_marker(connection, store, tx_id, self._beginning.deadline)
        if inserted.began != self._beginning.began:
            raise transaction_ended(self.database.path, tx_id)
        return inserted.schema

    def check_alive(self, session: Session) -> None:
        """Raise unless everything that the session did since the marker can still be committed."""
        connection = session.connection()
        driver = _driver_of(connection)
        if self._has_savepoint and not driver.in_transaction:
            raise transaction_ended(self.database.path, self._tx_id)
        status = getattr(getattr(driver, "info", None), "transaction_status", None)
        if not self._has_savepoint and status != IN_TRANSACTION:
            # if the transaction failed, this raises the database's error
            connection.exec_driver_sql("SELECT 1")

    def _release_savepoint(self, connection: Connection, tx_id: str) -> None:
        try:
            connection.exec_driver_sql(f"RELEASE {BLOCK_SAVEPOINT}")
        except OperationalError as error:
            if is_gone(error.orig):
                raise transaction_ended(self.database.path, tx_id) from None
            raise

    def rolled_back_for_sure(self, error: BaseException) -> bool:
        """Return whether a commit that raised certainly did not happen."""
        if self._root is not None and self._root.is_active:
            return True  # a listener failed before COMMIT, so COMMIT was not tried
        return self.proves_rollback(getattr(error, "orig", None))

    def proves_rollback(self, error: BaseException | None) -> bool:
        """Return whether the driver's error of COMMIT proves that nothing was committed."""
        if self.database.dialect is SQLITE:
            # a transaction that is still open has not committed
            return bool(self._driver.in_transaction)
        if self.database.dialect is POSTGRES:
            # `sqlstate` in most drivers, `pgcode` in psycopg2.
            state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
            return rolled_back_by_server(state)
        return False


def database_of(given: Session | scoped_session[Any] | Connection | Engine) -> SqlAlchemyDatabase:
    """Return the database of a session, connection or engine, blocking or asyncio.

    Raises BindError if a session has none, or works on a connection that it was given.
    """
    bound: Any = getattr(given, "sync_session", None) or getattr(given, "sync_engine", given)
    if isinstance(bound, (Session, scoped_session)):
        try:
            found = bound.get_bind()
        except UnboundExecutionError:
            raise BindError(
                "the session has no single engine, so there is no one database to "
                "bind. Nothing was changed; use a session for each database, with bind=engine."
            ) from None
        if isinstance(found, Connection):
            raise BindError(
                "the session works on a connection that it was given, whose transaction may "
                "not be its own. Nothing was changed; bind the connection, or give the session "
                "an engine."
            )
        return SqlAlchemyDatabase(found)
    return SqlAlchemyDatabase(bound if isinstance(bound, Engine) else bound.engine)


def _connection_of(bound: Session | Connection) -> Connection:
    return bound if isinstance(bound, Connection) else bound.connection()


def _driver_of(connection: Connection) -> Any:
    return connection.connection.driver_connection
