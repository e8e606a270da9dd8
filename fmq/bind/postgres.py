"""PostgreSQL through psycopg 3: marking a transaction, committing it, finding out what it did."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from fmq.bind.errors import (
    RULED_OUT,
    TOO_OLD,
    BindError,
    Fenced,
    NoMarkerTable,
    WrongDatabase,
    ended_inside,
    strangers,
    unusable,
    work_open,
)
from fmq.bind.marker import (
    BUSY_SECONDS,
    DDL,
    DEADLINE_SECONDS,
    GRACE_SECONDS,
    REGISTERED,
    TABLE,
    registered_as,
)
from fmq.feedback.question import Answer, Question

Connection = psycopg.Connection[Any]

MARK = (
    f"INSERT INTO {TABLE} (store_id, tx_id, state, deadline) "
    "SELECT %s, %s, 'C', %s::timestamptz WHERE clock_timestamp() < %s::timestamptz"
)
FENCE = (
    f"INSERT INTO {TABLE} (store_id, tx_id, state, deadline, checked_at) "
    f"VALUES (%s, %s, 'R', now() + interval '{DEADLINE_SECONDS} s', now()) "
    "ON CONFLICT (store_id, tx_id) DO UPDATE SET checked_at = now() RETURNING state"
)
LOOK = f"SELECT state FROM {TABLE} WHERE store_id = %s AND tx_id = %s"
OLD_MARKERS = (
    f"SELECT tx_id FROM {TABLE} WHERE store_id = %s AND state = 'C' AND tx_id NOT LIKE %s "
    "AND created_at < now() - %s * interval '1 s'"
)
REMOVE = f"DELETE FROM {TABLE} WHERE store_id = %s AND tx_id = ANY(%s)"
REMOVE_TOMBSTONES = (
    f"DELETE FROM {TABLE} WHERE store_id = %s AND state = 'R' "
    "AND deadline < now() - %s * interval '1 s'"
)
REGISTER = (
    f"INSERT INTO {TABLE} (store_id, tx_id, state, deadline) VALUES (%s, %s, 'C', now()) "
    "ON CONFLICT DO NOTHING"
)
# The server said itself that it had rolled back: constraints, a dead transaction, serialization.
ROLLED_BACK = ("23", "25", "40")
NOT_KNOWN_EITHER = "40003"  # statement_completion_unknown: CockroachDB, poolers
# No server, a lost connection, a lock not given in time, a deadlock; or only a replica.
NOT_NOW = (psycopg.OperationalError, errors.ReadOnlySqlTransaction)


class PostgresBinding:
    """One connection of the user's, for one transaction."""

    def __init__(self, connection: Connection) -> None:
        if connection.closed:
            raise unusable("it is closed.")
        self._connection = connection
        self._deadline: object = None
        self._certain = False
        info = connection.info
        self.path = f"postgresql://{info.host}:{info.port}/{info.dbname}"

    def register(self, store: str, producer: str, *, new: bool) -> None:
        """Have the database know, for good, that it is the one that `producer` binds; BindError
        if it does not know that yet, and `producer` is not `new`.
        """
        self._refuse_open_transaction()
        try:
            with self._named():
                added = self._connection.execute(REGISTER, (store, registered_as(producer)))
            if added.rowcount and not new:
                raise strangers(self.path, producer)
            self._connection.commit()
        except BaseException:
            self.rollback()
            raise

    def begin(self) -> str:
        """Begin the database's transaction; what may take back its commits, or nothing."""
        self._refuse_open_transaction()
        # As text: what a connection makes of times is its user's affair.
        row = self._connection.execute(
            "SELECT (clock_timestamp() + %s * interval '1 s')::text, "
            "current_setting('synchronous_commit'), current_setting('fsync')",
            (DEADLINE_SECONDS,),
        ).fetchone()
        assert row is not None
        self._deadline, commits, fsync = row
        if commits != "off" and fsync != "off":
            return ""
        return (
            f"{self.path}: with synchronous_commit={commits} and fsync={fsync} a crash of the "
            "server may take back what was committed, and leave the messages that tell of it. "
            "synchronous_commit=on and fsync=on keep them together."
        )

    def mark(self, store: str, tx_id: str) -> None:
        """The last statement of the database's transaction; Fenced if it comes too late."""
        connection = self._connection
        if connection.info.transaction_status == TransactionStatus.IDLE:
            raise ended_inside(self.path, tx_id)
        try:
            with self._named():
                marked = connection.execute(MARK, (store, tx_id, self._deadline, self._deadline))
        except errors.UniqueViolation:
            raise Fenced(tx_id, RULED_OUT) from None
        if marked.rowcount != 1:
            raise Fenced(tx_id, TOO_OLD)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except errors.UndefinedTable:
            raise NoMarkerTable(self.path, DDL["postgres"]) from None

    def commit(self) -> None:
        try:
            self._connection.commit()
        except psycopg.Error as error:
            state = error.sqlstate or ""
            self._certain = state.startswith(ROLLED_BACK) and state != NOT_KNOWN_EITHER
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
        info = self._connection.info
        return check(make_conninfo(info.dsn, password=info.password), question)

    def _refuse_open_transaction(self) -> None:
        if self._connection.autocommit:
            raise BindError(
                f"{self.path}: this connection commits each statement by itself, so there is "
                "nothing to bind. Nothing was changed; use one with autocommit=False."
            )
        if self._connection.info.transaction_status != TransactionStatus.IDLE:
            raise work_open(self.path)


def check(address: str, question: Question) -> Answer:
    """Whether the database committed: asked behind the fence, so it is final."""
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            return _fence(connection, address, question)
    except errors.UndefinedTable:
        raise NoMarkerTable(shown(address), DDL["postgres"]) from None
    except NOT_NOW:
        return "unknown"  # perhaps the producer is still at it


def _fence(connection: Connection, address: str, question: Question) -> Answer:
    key = question.store, question.tx_id
    timeout = sql.Literal(f"{BUSY_SECONDS * 1000:.0f}ms")
    connection.execute(sql.SQL("SET lock_timeout = {}").format(timeout))
    connection.execute("SET synchronous_commit = on")  # it covers the producer's commit, too
    registered = question.store, registered_as(question.producer)
    if connection.execute(LOOK, registered).fetchone() is None:
        raise WrongDatabase(shown(address), question.producer)
    # It waits for the row of a transaction that is still open, and returns what stands then.
    row = connection.execute(FENCE, key).fetchone()
    assert row is not None
    return "commit" if row[0] == "C" else "rollback"


def shown(address: str) -> str:
    """The address as errors may show it: without its password."""
    info = psycopg.conninfo.conninfo_to_dict(address)
    return " ".join(f"{name}={info[name]}" for name in ("host", "port", "dbname") if name in info)


def create_table(connection: Connection) -> None:
    """Make the marker table if it is not there."""
    found = connection.execute("SELECT to_regclass(%s)", (TABLE,)).fetchone()
    if found is None or found[0] is None:
        connection.execute(DDL["postgres"])
    connection.commit()


def purge(
    connection: Connection, store: str, undecided: frozenset[str], older_seconds: float
) -> int:
    """Remove markers that nobody can ask about any more; how many."""
    old = connection.execute(OLD_MARKERS, (store, REGISTERED + "%", older_seconds)).fetchall()
    gone = [tx_id for (tx_id,) in old if tx_id not in undecided]
    connection.execute(REMOVE, (store, gone))
    tombstones = connection.execute(REMOVE_TOMBSTONES, (store, GRACE_SECONDS)).rowcount
    connection.commit()
    return len(gone) + tombstones


binding = PostgresBinding
