"""The dialects of SQLite, PostgreSQL and MySQL: their SQL, whichever driver runs it.

Parameters are named, as in :tx_id. Times are seconds since 1970 by the database's clock.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fmq.bind.bind_errors import BindError
from fmq.bind.marker import BUSY_SECONDS, DEADLINE_SECONDS, GRACE_SECONDS, REGISTERED, TABLE

Execute = Callable[[str], Iterable[Any]]
"""Runs a statement without parameters, and returns its rows."""

BUSY_MS = round(BUSY_SECONDS * 1000)
KEY = "store_id = :store AND tx_id = :tx_id"


class Statements:
    """The statements on the marker table. `now` is the SQL that reads the database's clock."""

    def __init__(
        self,
        now: str,
        *,
        table: str = TABLE,
        time: str = "{}",
        epoch: str = "{}",
        seconds: str = "{}",
        text: str = "{}",
        source: str = "",
        unless_there: str = "ON CONFLICT DO NOTHING",
        returning: str = "",
    ) -> None:
        """Write the statements with these pieces of SQL.

        `time` converts seconds since 1970, `epoch` converts back, `seconds` a number of seconds,
        `text` a column of text. `source` selects from no table. `returning` makes the insertion
        return when its transaction began and in which schema the marker lies.
        """
        begin = f"INSERT INTO {table} (store_id, tx_id, state, deadline"
        self.insert = (
            f"{begin}) SELECT :store, :tx_id, 'C', {time.format(':deadline')}"
            f"{source} WHERE {now} < {time.format(':deadline')}{returning}"
        )
        self.look = f"SELECT state FROM {table} WHERE {KEY}"
        self.rows = (
            f"SELECT {text.format('tx_id')}, state, {epoch.format('created_at')}, "
            f"{epoch.format(now)} FROM {table} WHERE store_id = :store"
        )
        self.seen = f"UPDATE {table} SET checked_at = {now} WHERE {KEY}"
        self.tombstone = (
            f"{begin}, checked_at) "
            f"VALUES (:store, :tx_id, 'R', {now} + {seconds.format(DEADLINE_SECONDS)}, {now})"
        )
        self.register = f"{begin}) VALUES (:store, :tx_id, 'C', {now}) {unless_there}"
        self.old = (
            f"SELECT {text.format('tx_id')} FROM {table} WHERE store_id = :store AND state = 'C' "
            "AND tx_id NOT LIKE :registered "
            f"AND created_at < {now} - {seconds.format(':older')}"
        )
        self.remove = f"DELETE FROM {table} WHERE {KEY}"
        self.remove_tombstones = (
            f"DELETE FROM {table} WHERE store_id = :store AND state = 'R' "
            f"AND deadline < {now} - {seconds.format(GRACE_SECONDS)}"
        )

    def in_percent_format(self) -> Statements:
        """Return these statements with parameters in the form %(tx_id)s."""
        other = copy.copy(self)
        for name, text in vars(self).items():
            setattr(other, name, re.sub(r":(\w+)", r"%(\1)s", text))
        return other


class Cursor(Protocol):
    """The part of a DB-API cursor that purging needs."""

    def execute(self, statement: str, values: dict[str, Any], /) -> Any: ...

    def executemany(self, statement: str, values: list[dict[str, Any]], /) -> Any: ...


def key_of(store: str, tx_id: str) -> dict[str, Any]:
    """Return the parameters for the key of a row."""
    return {"store": store, "tx_id": tx_id}


# Rows that one transaction removes, so that the user's program never waits for more of them.
PURGED_AT_ONCE = 1000


def purge(
    cursor: Cursor,
    commit: Callable[[], object],
    say: Statements,
    store: str,
    undecided: frozenset[str],
    older_seconds: float,
) -> int:
    """Remove markers that no checker can ask about any more, and return how many.

    Commits after each 1,000 rows.
    """
    which = {"store": store, "registered": REGISTERED + "%", "older": older_seconds}
    found = (tx_id for (tx_id,) in cursor.execute(say.old, which).fetchall())
    old = (str(tx_id, "utf-8") if isinstance(tx_id, bytes) else tx_id for tx_id in found)
    gone = [key_of(store, tx_id) for tx_id in old if tx_id not in undecided]
    commit()  # ends the lock for reading, so that other programs can write
    for first in range(0, len(gone), PURGED_AT_ONCE):
        cursor.executemany(say.remove, gone[first : first + PURGED_AT_ONCE])
        commit()
    tombstones: int = cursor.execute(say.remove_tombstones, {"store": store}).rowcount
    commit()
    return len(gone) + tombstones


class MarkerRow(NamedTuple):
    """One row of the marker table."""

    tx_id: str
    state: str
    created: float  # seconds since 1970 by the database's clock


class MarkerRows(NamedTuple):
    """The marker table of one store, at one instant."""

    producers: frozenset[str]  # the producers that have bound the database
    rows: list[MarkerRow]
    now: float  # the database's clock
    spread_seconds: int  # how long before the prepare of its transaction a marker may be dated


def markers(cursor: Cursor, say: Statements, store: str, spread_seconds: int) -> MarkerRows:
    """Return the rows of `store` in the marker table. Changes nothing."""
    producers: list[str] = []
    rows: list[MarkerRow] = []
    now = 0.0
    for tx_id, state, created, clock in cursor.execute(say.rows, {"store": store}).fetchall():
        name = str(tx_id, "utf-8") if isinstance(tx_id, bytes) else tx_id
        if name.startswith(REGISTERED):
            producers.append(name.removeprefix(REGISTERED))
        else:
            rows.append(MarkerRow(name, state, float(created)))
        now = float(clock)
    return MarkerRows(frozenset(producers), rows, now, spread_seconds)


class Beginning(NamedTuple):
    """What a bound transaction reads when it begins."""

    deadline: int  # the last time at which a marker may be inserted
    # When PostgreSQL's transaction began, which identifies the transaction; "" for other databases.
    began: str
    loss: str  # why the database may lose commits, in its present configuration; else ""


@dataclass(frozen=True)
class Dialect:
    """The differences between the kinds of database."""

    ddl: str  # the key of the table's statement in marker.DDL
    statements: Statements
    # statements for a checker's connection: short waits for locks, and durable commits
    setup: tuple[str, ...]
    # The second argument is the name of the database, for errors.
    begin: Callable[[Execute, str], Beginning]
    # How long before the prepare of its transaction a marker may have been dated.
    spread_seconds: int = DEADLINE_SECONDS


# --- SQLite ------------------------------------------------------------------------------------


def sqlite_path(execute: Execute) -> str:
    """Return the file of the connection's main database. Raises BindError if it is in memory."""
    # As bytes, because the program may have set another type for text.
    ask = "SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'"
    for (file,) in execute(ask):
        if file:
            return str(file, "utf-8")
    raise BindError(
        "a database in memory is gone with its process, so it cannot be asked after a crash. "
        "Nothing was changed. Bind one that has a file."
    )


# A savepoint at the start of the block. If the database's transaction ends inside of the block, the
# savepoint is gone, even if another transaction has begun. SQLite itself may end it, too (ON
# CONFLICT ROLLBACK).
BLOCK_SAVEPOINT = "fmq_block"


def is_gone(error: BaseException | None) -> bool:
    """Return whether releasing a savepoint failed because the savepoint is gone."""
    return "no such savepoint" in str(error)


LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")


def _begin_sqlite(execute: Execute, path: str) -> Beginning:
    [(mode, level, deadline)] = execute(SQLITE_BEGINNING)
    mode = str(mode, "utf-8")
    # With journal_mode=DELETE, removing the journal file commits, and only EXTRA syncs the
    # directory after that.
    least = 2 if mode in ("wal", "truncate", "persist") else 3
    if mode not in ("off", "memory") and level >= least:
        return Beginning(int(deadline), "", "")
    loss = (
        f"{path}: with journal_mode={mode} and synchronous={LEVELS[level]} a power cut may take "
        "back what was committed, and keep the messages about it. journal_mode=WAL with "
        "synchronous=FULL, or journal_mode=DELETE with synchronous=EXTRA, keeps them together."
    )
    return Beginning(int(deadline), "", loss)


SQLITE_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"
# The mode as bytes, because the program may have set another type for text.
SQLITE_BEGINNING = (
    f"SELECT CAST(journal_mode AS BLOB), synchronous, {SQLITE_NOW} + {DEADLINE_SECONDS} "
    "FROM pragma_journal_mode, pragma_synchronous"
)
SQLITE = Dialect(
    "sqlite",
    # Only the main file, because an attached file or a temporary table commits by itself.
    Statements(SQLITE_NOW, table=f"main.{TABLE}", text="CAST({} AS BLOB)"),
    (f"PRAGMA busy_timeout = {BUSY_MS}", "PRAGMA synchronous = EXTRA"),
    _begin_sqlite,
    spread_seconds=0,  # a marker is dated and prepared under one lock for writing
)


# --- PostgreSQL --------------------------------------------------------------------------------


# now() is constant in a transaction, and different in the next.
POSTGRES_BEGAN = "CAST(extract(epoch FROM now()) AS text)"
POSTGRES_SCHEMA = "SELECT CAST(relnamespace AS text) FROM pg_class WHERE oid = "


def _begin_postgres(execute: Execute, path: str) -> Beginning:
    [(deadline, began, commits, fsync)] = execute(
        f"SELECT CAST(extract(epoch FROM clock_timestamp()) AS bigint) + {DEADLINE_SECONDS}, "
        f"{POSTGRES_BEGAN}, current_setting('synchronous_commit'), current_setting('fsync')"
    )
    if commits != "off" and fsync != "off":
        return Beginning(int(deadline), began, "")
    loss = (
        f"{path}: with synchronous_commit={commits} and fsync={fsync} a crash of the "
        "server may take back what was committed, and keep the messages about it. "
        "synchronous_commit=on and fsync=on keep them together."
    )
    return Beginning(int(deadline), began, loss)


def rolled_back_by_server(sqlstate: str | None) -> bool:
    """Return whether an error of COMMIT proves that PostgreSQL has rolled back."""
    # 23: a constraint. 25: an aborted transaction. 40: serialization, except for 40003: outcome
    # unknown.
    return sqlstate is not None and sqlstate[:2] in ("23", "25", "40") and sqlstate != "40003"


POSTGRES = Dialect(
    "postgres",
    Statements(
        "clock_timestamp()",
        time="to_timestamp({})",
        epoch="extract(epoch FROM {})",
        seconds="{} * interval '1 s'",
        returning=f" RETURNING {POSTGRES_BEGAN}, ({POSTGRES_SCHEMA}{TABLE}.tableoid)",
    ),
    (f"SET lock_timeout = '{BUSY_MS}ms'", "SET synchronous_commit = on"),
    _begin_postgres,
)


# --- MySQL -------------------------------------------------------------------------------------


def _begin_mysql(execute: Execute, path: str) -> Beginning:
    [(deadline, flush)] = execute(
        f"SELECT unix_timestamp() + {DEADLINE_SECONDS}, @@innodb_flush_log_at_trx_commit"
    )
    if int(flush) == 1:
        return Beginning(int(deadline), "", "")
    loss = (
        f"{path}: with innodb_flush_log_at_trx_commit={flush} a crash may take back what was "
        "committed, and keep the messages about it. With 1 they stay together."
    )
    return Beginning(int(deadline), "", loss)


MYSQL = Dialect(
    "mysql",
    Statements(
        "unix_timestamp()",
        text="convert({} USING utf8mb4)",
        source=" FROM dual",
        unless_there="ON DUPLICATE KEY UPDATE state = 'C'",
    ),
    ("SET SESSION innodb_lock_wait_timeout = 1",),  # 1 second: MySQL accepts no shorter time
    _begin_mysql,
)
