"""Bind connections of psycopg 3, and ask a PostgreSQL database what a transaction did."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from fmq.bind import dialects
from fmq.bind.bind_errors import (
    RULED_OUT,
    TOO_OLD,
    Fenced,
    NoMarkerTable,
    Unreachable,
    WrongDatabase,
    in_autocommit,
    in_pipeline,
    transaction_ended,
    transaction_open,
    unknown_producer,
    unusable_connection,
)
from fmq.bind.dialects import (
    POSTGRES,
    POSTGRES_SCHEMA,
    Beginning,
    MarkerRows,
    key_of,
    rolled_back_by_server,
)
from fmq.bind.marker import DDL, TABLE, registered_as
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question

PsycopgConnection = psycopg.Connection[Any]

STATEMENTS = POSTGRES.statements.in_percent_format()
FENCE = (
    f"{STATEMENTS.tombstone} ON CONFLICT (store_id, tx_id) DO UPDATE SET checked_at = now() "
    "RETURNING state"
)
SCHEMA = POSTGRES_SCHEMA + "to_regclass(%(table)s)"
# Errors for another transaction in the way: a lock not granted in time, a deadlock and the like.
BUSY_ERRORS = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.QueryCanceled,
)
# Errors for no server, a lost connection, or a replica that cannot write.
UNREACHABLE_ERRORS = (psycopg.OperationalError, errors.ReadOnlySqlTransaction)
CONNECT_SECONDS = 5  # seconds to connect, unless the address has its own timeout


class PostgresBinding:
    """One connection of the user, for one transaction."""

    def __init__(self, connection: PsycopgConnection) -> None:
        if connection.closed:
            raise unusable_connection("it is closed.")
        self._connection = connection
        self._beginning = Beginning(0, "", "")
        self._certain = False
        self._address = ""
        info = connection.info
        self.path = f"postgresql://{info.host}:{info.port}/{info.dbname}"

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Write durably that `producer` binds this database. Return the schema of the table.

        Raises BindError if the database did not know that, and `producer` is not `new`.
        """
        self._refuse_open_transaction()
        # The checkers keep this binding after the connection may have been closed.
        self._address = address_of(self._connection)
        try:
            with self._checking_table():
                key = key_of(store, registered_as(producer))
                added = self._connection.execute(STATEMENTS.register, key)
            if added.rowcount and not new:
                raise unknown_producer(self.path, producer)
            found = _tuple_cursor(self._connection).execute(SCHEMA, {"table": TABLE}).fetchone()
            self._connection.commit()
        except BaseException:
            self.rollback()
            raise
        assert found is not None
        return str(found[0])

    def begin(self) -> str:
        """Begin the database's transaction. Return a warning if its commits may be lost, or ""."""
        self._refuse_open_transaction()
        return self.join()

    def join(self) -> str:
        """Join the open transaction. Return a warning if its commit may be lost, or ""."""
        execute = _tuple_cursor(self._connection).execute
        self._beginning = POSTGRES.begin(execute, self.path)
        return self._beginning.loss

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Insert the marker as the last statement, and return the schema that it went to.

        Raises Fenced if a checker has ruled the transaction out, or the deadline is over.
        """
        connection = self._connection
        if connection.info.transaction_status == TransactionStatus.IDLE:
            raise transaction_ended(self.path, tx_id)
        values = key_of(store, tx_id) | {"deadline": self._beginning.deadline}
        try:
            with self._checking_table():
                cursor = connection.execute(STATEMENTS.insert, values)
            cursor.row_factory = tuple_row
            inserted = cursor.fetchone()
        except errors.UniqueViolation:
            raise Fenced(tx_id, RULED_OUT) from None
        if inserted is None:
            raise Fenced(tx_id, TOO_OLD)
        began, schema = inserted
        if began != self._beginning.began:
            raise transaction_ended(self.path, tx_id)
        return str(schema)

    @contextlib.contextmanager
    def _checking_table(self) -> Iterator[None]:
        try:
            yield
        except errors.UndefinedTable:
            raise NoMarkerTable(self.path, DDL["postgres"]) from None

    def commit(self) -> None:
        """Commit. If that fails, remember whether the error proves a rollback."""
        try:
            self._connection.commit()
        except psycopg.Error as error:
            self._certain = self.proves_rollback(error)
            raise

    def proves_rollback(self, failed: BaseException) -> bool:
        """Return whether an error of the commit proves that nothing was committed."""
        return isinstance(failed, psycopg.Error) and rolled_back_by_server(failed.sqlstate)

    def rolled_back_for_sure(self) -> bool:
        """Return whether the server said that a commit that raised did not happen."""
        return self._certain

    def rollback(self) -> None:
        """Roll back the database's transaction. A lost connection has done so itself."""
        with contextlib.suppress(psycopg.OperationalError):
            self._connection.rollback()

    def leave(self) -> None:
        """Do nothing, because `begin` set nothing up."""

    def check(self, question: Question) -> Answer:
        """Ask on a new connection what the database did with the transaction."""
        return self._database().check(question)

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers on a new connection, and return how many."""
        return self._database().purge(store, undecided, older_seconds)

    def _database(self) -> PostgresDatabase:
        return PostgresDatabase(self._address or address_of(self._connection))

    def _refuse_open_transaction(self) -> None:
        if self._connection.autocommit:
            raise in_autocommit(self.path)
        if self._connection.info.pipeline_status != PipelineStatus.OFF:
            raise in_pipeline(self.path)
        if self._connection.info.transaction_status != TransactionStatus.IDLE:
            raise transaction_open(self.path)


def address_of(connection: PsycopgConnection) -> str:
    """Return the address for another connection like `connection`, which must be open."""
    info = connection.info
    return make_conninfo(info.dsn, password=info.password)


class PostgresDatabase:
    """A database by its address. Each call uses a new connection."""

    def __init__(self, address: str) -> None:
        self._address = address

    def check(self, question: Question) -> Answer:
        """Return whether the database committed. The fence makes the answer final."""
        address = self._address
        try:
            with self._checking_table(), self._connect(autocommit=True) as connection:
                return _fence(connection, address, question)
        except BUSY_ERRORS:
            return "unknown"  # the transaction of the producer may still be open
        except UNREACHABLE_ERRORS as error:
            raise Unreachable(str(error)) from error

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers that no checker can ask about any more, and return how many."""
        with self._checking_table(), self._connect(autocommit=False) as connection:
            connection.execute(POSTGRES.setup[0])
            return purge(connection, store, undecided, older_seconds)

    def markers(self, store: str) -> MarkerRows:
        """Return the rows of a store in the marker table, read in a transaction that only reads."""
        try:
            with self._checking_table(), self._connect(autocommit=False) as connection:
                connection.read_only = True
                return markers(connection, store)
        except psycopg.OperationalError as error:
            raise Unreachable(str(error)) from error

    def _connect(self, *, autocommit: bool) -> PsycopgConnection:
        known = psycopg.conninfo.conninfo_to_dict(self._address)
        seconds = known.get("connect_timeout") or CONNECT_SECONDS
        return psycopg.connect(self._address, autocommit=autocommit, connect_timeout=seconds)

    @contextlib.contextmanager
    def _checking_table(self) -> Iterator[None]:
        try:
            yield
        except errors.UndefinedTable:
            raise NoMarkerTable(without_password(self._address), DDL["postgres"]) from None


def _fence(connection: PsycopgConnection, address: str, question: Question) -> Answer:
    for statement in POSTGRES.setup:
        connection.execute(statement)
    registered = key_of(question.store, registered_as(question.producer))
    if connection.execute(STATEMENTS.look, registered).fetchone() is None:
        raise WrongDatabase(without_password(address), question.producer)
    # Waits for the row of a transaction that is still open. Returns the state after its end.
    row = connection.execute(FENCE, key_of(question.store, question.tx_id)).fetchone()
    assert row is not None
    return "commit" if row[0] == "C" else "rollback"


def without_password(address: str) -> str:
    """Return the address without its password, for errors."""
    info = psycopg.conninfo.conninfo_to_dict(address)
    return " ".join(f"{name}={info[name]}" for name in ("host", "port", "dbname") if name in info)


def create_table(connection: PsycopgConnection) -> None:
    """Make the marker table if it does not exist."""
    found = _tuple_cursor(connection).execute("SELECT to_regclass(%s)", (TABLE,)).fetchone()
    if found is None or found[0] is None:
        connection.execute(DDL["postgres"])
    connection.commit()


def purge(
    connection: PsycopgConnection, store: str, undecided: frozenset[str], older_seconds: float
) -> int:
    """Remove markers that no checker can ask about any more, and return how many."""
    commit = connection.commit
    return dialects.purge(
        _tuple_cursor(connection), commit, STATEMENTS, store, undecided, older_seconds
    )


def markers(connection: PsycopgConnection, store: str) -> MarkerRows:
    """Return the rows of a store in the marker table."""
    return dialects.markers(_tuple_cursor(connection), STATEMENTS, store, POSTGRES.spread_seconds)


def _tuple_cursor(connection: PsycopgConnection) -> psycopg.Cursor[Any]:
    """Return a cursor whose rows are tuples, even if the connection has another row type."""
    return connection.cursor(row_factory=tuple_row)


binding = PostgresBinding
