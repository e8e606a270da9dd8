"""The interface of a shop's database, and the database in a file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import fmq.bind
from crash_tests.bound.steps import Stage
from fmq.bind.dialects import key_of
from fmq.bind.sqlite import STATEMENTS


class Database(Protocol):
    """Orders, one row each, and the table of markers. It is passed to other processes."""

    @property
    def address(self) -> str:
        """Return the database's address, as `resolve` takes it."""

    @property
    def error(self) -> type[Exception]:
        """Return the exception for a database that cannot be reached."""

    def make(self) -> None:
        """Make the tables, empty."""

    def connect(self, stage: Stage) -> Any:
        """Return a connection that reports its steps to `stage`."""

    def insert(self, connection: Any, order: str) -> None: ...

    def rows(self) -> list[str]:
        """Return the names of all orders."""

    def look(self, store: str, tx_id: str) -> str | None:
        """Return the state of a marker, as a plain SELECT sees it."""

    def cut(self, connection: Any, *, answers_only: bool) -> None:
        """Break the connection, as a network does. It may be broken in one direction only."""

    def process_of(self, connection: Any) -> int:
        """Return the process of the server that serves the connection; 0 if there is none."""


class SteppingSqlite(sqlite3.Connection):
    stage: Stage

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement != STATEMENTS.insert:
            return super().execute(statement, *values)
        with self.stage.marking():
            return super().execute(statement, *values)

    def commit(self) -> None:
        self.stage.committing(super().commit)


@dataclass(frozen=True, slots=True)
class Sqlite:
    """A database in a file. It is as durable as fmq is, in either of its modes."""

    path: str
    wal: bool

    @property
    def address(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def error(self) -> type[Exception]:
        return sqlite3.Error

    def make(self) -> None:
        with self._opened() as connection:
            connection.execute("CREATE TABLE orders (name TEXT PRIMARY KEY)")
            fmq.bind.create_table(connection)

    def connect(self, stage: Stage) -> SteppingSqlite:
        connection = sqlite3.connect(self.path, factory=SteppingSqlite)
        self._set_up(connection)
        connection.stage = stage
        return connection

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path)
        self._set_up(connection)
        yield connection
        connection.close()

    def _set_up(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA journal_mode = {'WAL' if self.wal else 'DELETE'}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self.wal else 'EXTRA'}")

    def insert(self, connection: sqlite3.Connection, order: str) -> None:
        connection.execute("INSERT INTO orders VALUES (?)", (order,))

    def rows(self) -> list[str]:
        with self._opened() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM orders")]

    def look(self, store: str, tx_id: str) -> str | None:
        with self._opened() as connection:
            row = connection.execute(STATEMENTS.look, key_of(store, tx_id)).fetchone()
            return None if row is None else str(row[0])

    def cut(self, connection: sqlite3.Connection, *, answers_only: bool) -> None:
        raise NotImplementedError("there is nothing between a program and its file")

    def process_of(self, connection: sqlite3.Connection) -> int:
        return 0
