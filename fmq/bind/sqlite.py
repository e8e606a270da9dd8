"""Bind connections of sqlite3, and ask a SQLite database what a transaction did."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Literal
from urllib.parse import quote

from fmq.bind import dialects
from fmq.bind.bind_errors import (
    RULED_OUT,
    TOO_OLD,
    Fenced,
    NoMarkerTable,
    Unreachable,
    WrongDatabase,
    made_with_autocommit,
    transaction_ended,
    transaction_open,
    unknown_producer,
    unusable_connection,
)
from fmq.bind.dialects import BLOCK_SAVEPOINT, SQLITE, MarkerRows, is_gone, key_of, sqlite_path
from fmq.bind.marker import DDL, TABLE, registered_as
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question

STATEMENTS = SQLITE.statements


class SqliteBinding:
    """One connection of the user, for one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._deadline = 0
        self.path = path_of(connection)

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Write durably that `producer` binds this database. Return "", because SQLite has no
        schemas.

        Raises BindError if the database did not know that, and `producer` is not `new`.
        """
        self._refuse_open_transaction()
        connection = self._connection
        with self._checking_table():
            connection.execute("BEGIN IMMEDIATE")
            added = connection.execute(STATEMENTS.register, key_of(store, registered_as(producer)))
            if added.rowcount and not new:
                connection.rollback()
                raise unknown_producer(self.path, producer)
            connection.commit()
        return ""

    def knows(self, store: str, producer: str) -> bool:
        """Return whether the database has a row for `producer`."""
        key = key_of(store, registered_as(producer))
        with self._checking_table():
            return self._connection.execute(STATEMENTS.look, key).fetchone() is not None

    def join(self) -> str:
        """Join the open transaction, at whose beginning BLOCK_SAVEPOINT was set.

        Return a warning if its commit may be lost, or "".
        """
        beginning = SQLITE.begin(_tuple_cursor(self._connection).execute, self.path)
        self._deadline = beginning.deadline
        return beginning.loss

    def begin(self) -> str:
        """Begin the database's transaction with the right to write.

        Return a warning if its commits may be lost, or "".
        """
        self._refuse_open_transaction()
        connection = self._connection
        beginning = SQLITE.begin(_tuple_cursor(connection).execute, self.path)
        self._deadline = beginning.deadline
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"SAVEPOINT {BLOCK_SAVEPOINT}")
        return beginning.loss

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Insert the marker as the last statement. Return "", because SQLite has no schemas.

        Raises Fenced if a checker has ruled the transaction out, or the deadline is over.
        """
        connection = self._connection
        try:
            connection.execute(f"RELEASE {BLOCK_SAVEPOINT}")
        except sqlite3.OperationalError as error:
            if is_gone(error):
                raise transaction_ended(self.path, tx_id) from None
            raise
        values = key_of(store, tx_id) | {"deadline": self._deadline}
        try:
            with self._checking_table():
                inserted = connection.execute(STATEMENTS.insert, values).rowcount
        except sqlite3.IntegrityError:
            raise Fenced(tx_id, RULED_OUT) from None
        if inserted != 1:
            raise Fenced(tx_id, TOO_OLD)
        return ""

    def _refuse_open_transaction(self) -> None:
        autocommit = getattr(self._connection, "autocommit", None)
        if isinstance(autocommit, bool):  # the other value, LEGACY_TRANSACTION_CONTROL, is an int
            raise made_with_autocommit(self.path, autocommit)
        if self._connection.in_transaction:
            raise transaction_open(self.path)

    @contextlib.contextmanager
    def _checking_table(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if self._connection.in_transaction:
                self._connection.rollback()
            if "no such table" in str(error):
                raise NoMarkerTable(self.path, DDL["sqlite"]) from None
            raise

    def commit(self) -> None:
        """Commit the database's transaction."""
        self._connection.commit()

    def rolled_back_for_sure(self) -> bool:
        """Return whether a commit that raised certainly did not happen."""
        if not self._connection.in_transaction:
            return False
        self._connection.rollback()  # a transaction that is still open has not committed
        return True

    def proves_rollback(self, failed: BaseException) -> bool:
        """Return whether a commit that raised `failed` certainly did not happen."""
        return self._connection.in_transaction  # a transaction that is still open has not committed

    def rollback(self) -> None:
        """Roll back the database's transaction. A closed connection has done so itself."""
        try:
            begun = self._connection.in_transaction
        except sqlite3.ProgrammingError:
            return
        if begun:
            self._connection.rollback()

    def leave(self) -> None:
        """Do nothing, because `begin` set nothing up."""

    def check(self, question: Question) -> Answer:
        """Ask on a new connection what the database did with the transaction."""
        return SqliteDatabase(self.path).check(question)

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers on a new connection, and return how many."""
        return SqliteDatabase(self.path).purge(store, undecided, older_seconds)


class SqliteDatabase:
    """A database file. Each call uses a new connection."""

    def __init__(self, path: str) -> None:
        self._path = path

    def check(self, question: Question) -> Answer:
        """Return whether the database committed. The fence makes the answer final."""
        try:
            return _fence(self._path, question)
        except sqlite3.OperationalError as error:
            self._refuse_without_table(error)
            if is_locked(error):
                return "unknown"  # the lock may be the producer's, whose transaction is still open
            raise Unreachable(f"{self._path}: {error}") from error

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers that no checker can ask about any more, and return how many."""
        with contextlib.closing(_connect(self._path, "DEFERRED")) as connection:
            try:
                return purge(connection, store, undecided, older_seconds)
            except sqlite3.OperationalError as error:
                self._refuse_without_table(error)
                raise

    def markers(self, store: str) -> MarkerRows:
        """Return the rows of a store in the marker table. The file is opened for reading only."""
        try:
            with contextlib.closing(_connect(self._path, None, mode="ro")) as connection:
                return markers(connection, store)
        except sqlite3.OperationalError as error:
            self._refuse_without_table(error)
            raise Unreachable(f"{self._path}: {error}") from error

    def _refuse_without_table(self, error: sqlite3.OperationalError) -> None:
        if "no such table" in str(error):
            raise NoMarkerTable(self._path, DDL["sqlite"]) from None


def is_locked(error: BaseException | None) -> bool:
    """Return whether an error says that another connection holds the database's lock."""
    return "locked" in str(error)


def _connect(
    path: str, level: Literal["DEFERRED"] | None, *, mode: Literal["ro", "rw"] = "rw"
) -> sqlite3.Connection:
    """Return a new connection that waits only a short time for a lock.

    Its transactions begin by `level`. It does not make the file if that is not there.
    """
    uri = f"file:{quote(path)}?mode={mode}"
    try:
        connection = sqlite3.connect(uri, isolation_level=level, uri=True)
    except sqlite3.OperationalError as error:
        raise Unreachable(f"{path}: {error}") from error
    for statement in SQLITE.setup:
        connection.execute(statement)
    return connection


def _fence(path: str, question: Question) -> Answer:
    key = key_of(question.store, question.tx_id)
    registered = key_of(question.store, registered_as(question.producer))
    with contextlib.closing(_connect(path, None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute(STATEMENTS.look, registered).fetchone() is None:
            raise WrongDatabase(path, question.producer)
        found = connection.execute(STATEMENTS.look, key).fetchone()
        # Write in both cases, because this commit's sync then covers the producer's commit, too.
        connection.execute(STATEMENTS.tombstone if found is None else STATEMENTS.seen, key)
        connection.execute("COMMIT")
    return "commit" if found is not None and found[0] == "C" else "rollback"


def _tuple_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor whose rows are tuples, even if the connection has another row type."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def create_table(connection: sqlite3.Connection) -> None:
    """Make the marker table if it does not exist."""
    found = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (TABLE,)
    ).fetchone()
    if found is None:
        connection.execute(DDL["sqlite"])
        connection.commit()


def purge(
    connection: sqlite3.Connection, store: str, undecided: frozenset[str], older_seconds: float
) -> int:
    """Remove markers that no checker can ask about any more, and return how many."""
    commit = connection.commit
    return dialects.purge(
        _tuple_cursor(connection), commit, STATEMENTS, store, undecided, older_seconds
    )


def markers(connection: sqlite3.Connection, store: str) -> MarkerRows:
    """Return the rows of a store in the marker table."""
    return dialects.markers(_tuple_cursor(connection), STATEMENTS, store, SQLITE.spread_seconds)


def path_of(connection: sqlite3.Connection) -> str:
    """Return the file of the connection's main database. Raises BindError if it has none."""
    try:
        return sqlite_path(_tuple_cursor(connection).execute)
    # the connection is closed, or belongs to another thread
    except sqlite3.ProgrammingError as error:
        raise unusable_connection(error) from None


binding = SqliteBinding
