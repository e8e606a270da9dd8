"""PostgreSQL through psycopg 3: marking a transaction, committing it, finding out what it did."""

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
from fmq.bind.dialects import POSTGRES, POSTGRES_SCHEMA, key_of, rolled_back_by_server
from fmq.bind.errors import (
    RULED_OUT,
    TOO_OLD,
    Fenced,
    NoMarkerTable,
    Unreachable,
    WrongDatabase,
    each_by_itself,
    ended_inside,
    in_pipeline,
    strangers,
    unusable,
    work_open,
)
from fmq.bind.marker import DDL, TABLE, registered_as
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question

Connection = psycopg.Connection[Any]

STATEMENTS = POSTGRES.statements.in_percent_format()
FENCE = (
    f"{STATEMENTS.tombstone} ON CONFLICT (store_id, tx_id) DO UPDATE SET checked_at = now() "
    "RETURNING state"
)
SCHEMA = POSTGRES_SCHEMA + "to_regclass(%(table)s)"
# A lock not given in time, a deadlock, and what else comes of another transaction.
BUSY_ERRORS = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.QueryCanceled,
)
# No server, a lost connection; or only a replica.
UNREACHABLE_ERRORS = (psycopg.OperationalError, errors.ReadOnlySqlTransaction)
CONNECT_SECONDS = 5  # unless the address says otherwise


class PostgresBinding:
    """One connection of the user's, for one transaction."""

    def __init__(self, connection: Connection) -> None:
        if connection.closed:
            raise unusable("it is closed.")
        self._connection = connection
        self._deadline = 0
        self._began = ""
        self._certain = False
        self._address = ""
        info = connection.info
        self.path = f"postgresql://{info.host}:{info.port}/{info.dbname}"

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Have the database know, for good, that it is the one that `producer` binds; BindError
        if it does not know that yet, and `producer` is not `new`. The schema that has the table.
        """
        self._refuse_open_transaction()
        # Its checker is kept, and this connection may be closed when somebody asks.
        self._address = address_of(self._connection)
        try:
            with self._checking_table():
                key = key_of(store, registered_as(producer))
                added = self._connection.execute(STATEMENTS.register, key)
            if added.rowcount and not new:
                raise strangers(self.path, producer)
            found = _tuple_cursor(self._connection).execute(SCHEMA, {"table": TABLE}).fetchone()
            self._connection.commit()
        except BaseException:
            self.rollback()
            raise
        assert found is not None
        return str(found[0])

    def begin(self) -> str:
        """Begin the database's transaction; what may take back its commits, or nothing."""
        self._refuse_open_transaction()
        execute = _tuple_cursor(self._connection).execute
        self._deadline, self._began, loss = POSTGRES.deadline(execute, self.path)
        return loss

    def mark(self, store: str, tx_id: str) -> str:
        """The last statement of the database's transaction; Fenced if it comes too late. The schema
        that has it.
        """
        connection = self._connection
        if connection.info.transaction_status == TransactionStatus.IDLE:
            raise ended_inside(self.path, tx_id)
        values = key_of(store, tx_id) | {"deadline": self._deadline}
        try:
            with self._checking_table():
                cursor = connection.execute(STATEMENTS.mark, values)
            cursor.row_factory = tuple_row  # whatever that of the connection is
            marked = cursor.fetchone()
        except errors.UniqueViolation:
            raise Fenced(tx_id, RULED_OUT) from None
        if marked is None:
            raise Fenced(tx_id, TOO_OLD)
        began, schema = marked
        if began != self._began:
            raise ended_inside(self.path, tx_id)
        return str(schema)

    @contextlib.contextmanager
    def _checking_table(self) -> Iterator[None]:
        try:
            yield
        except errors.UndefinedTable:
            raise NoMarkerTable(self.path, DDL["postgres"]) from None

    def commit(self) -> None:
        try:
            self._connection.commit()
        except psycopg.Error as error:
            self._certain = rolled_back_by_server(error.sqlstate)
            raise

    def rolled_back_for_sure(self) -> bool:
        """After a commit that failed: whether the server itself said that it did not happen."""
        return self._certain

    def rollback(self) -> None:
        """Drop what the database's transaction has done; a lost connection has done so itself."""
        with contextlib.suppress(psycopg.OperationalError):
            self._connection.rollback()

    def leave(self) -> None:
        """Nothing is left to do."""

    def check(self, question: Question) -> Answer:
        """What became of the transaction, on a connection of its own."""
        return self._database().check(question)

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove rows that are over, on a connection of its own; how many."""
        return self._database().purge(store, undecided, older_seconds)

    def _database(self) -> PostgresDatabase:
        return PostgresDatabase(self._address or address_of(self._connection))

    def _refuse_open_transaction(self) -> None:
        if self._connection.autocommit:
            raise each_by_itself(self.path)
        if self._connection.info.pipeline_status != PipelineStatus.OFF:
            raise in_pipeline(self.path)
        if self._connection.info.transaction_status != TransactionStatus.IDLE:
            raise work_open(self.path)


def address_of(connection: Connection) -> str:
    """Where a connection leads, as another one can be made; it must not be closed."""
    info = connection.info
    return make_conninfo(info.dsn, password=info.password)


class PostgresDatabase:
    """A database by its address, reached on a connection of its own for each call."""

    def __init__(self, address: str) -> None:
        self._address = address

    def check(self, question: Question) -> Answer:
        """Whether the database committed: asked behind the fence, so it is final."""
        address = self._address
        try:
            with self._checking_table(), self._connect(autocommit=True) as connection:
                return _fence(connection, address, question)
        except BUSY_ERRORS:
            return "unknown"  # perhaps the producer is still at it
        except UNREACHABLE_ERRORS as error:
            raise Unreachable(str(error)) from error

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove rows that are over; how many."""
        with self._checking_table(), self._connect(autocommit=False) as connection:
            connection.execute(POSTGRES.setup[0])
            return purge(connection, store, undecided, older_seconds)

    def _connect(self, *, autocommit: bool) -> Connection:
        known = psycopg.conninfo.conninfo_to_dict(self._address)
        seconds = known.get("connect_timeout") or CONNECT_SECONDS
        return psycopg.connect(self._address, autocommit=autocommit, connect_timeout=seconds)

    @contextlib.contextmanager
    def _checking_table(self) -> Iterator[None]:
        try:
            yield
        except errors.UndefinedTable:
            raise NoMarkerTable(shown(self._address), DDL["postgres"]) from None


def _fence(connection: Connection, address: str, question: Question) -> Answer:
    for statement in POSTGRES.setup:
        connection.execute(statement)
    registered = key_of(question.store, registered_as(question.producer))
    if connection.execute(STATEMENTS.look, registered).fetchone() is None:
        raise WrongDatabase(shown(address), question.producer)
    # It waits for the row of a transaction that is still open, and returns what stands then.
    row = connection.execute(FENCE, key_of(question.store, question.tx_id)).fetchone()
    assert row is not None
    return "commit" if row[0] == "C" else "rollback"


def shown(address: str) -> str:
    """The address as errors may show it: without its password."""
    info = psycopg.conninfo.conninfo_to_dict(address)
    return " ".join(f"{name}={info[name]}" for name in ("host", "port", "dbname") if name in info)


def create_table(connection: Connection) -> None:
    """Make the marker table if it is not there."""
    found = _tuple_cursor(connection).execute("SELECT to_regclass(%s)", (TABLE,)).fetchone()
    if found is None or found[0] is None:
        connection.execute(DDL["postgres"])
    connection.commit()


def purge(
    connection: Connection, store: str, undecided: frozenset[str], older_seconds: float
) -> int:
    """Remove markers that nobody can ask about any more; how many."""
    commit = connection.commit
    return dialects.purge(
        _tuple_cursor(connection), commit, STATEMENTS, store, undecided, older_seconds
    )


def _tuple_cursor(connection: Connection) -> psycopg.Cursor[Any]:
    """A cursor whose rows are tuples, whatever those of the connection are."""
    return connection.cursor(row_factory=tuple_row)


binding = PostgresBinding
