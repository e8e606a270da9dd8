"""SQLite and PostgreSQL with one interface, for tests that hold for both."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

import fmq.bind

ORDERS = "CREATE TABLE IF NOT EXISTS orders (name varchar(99) PRIMARY KEY)"


@dataclass(frozen=True)
class Sqlite:
    """A file of its own for each test, as durable as fmq is."""

    folder: Path
    ddl: str = fmq.bind.ddl("sqlite")

    @property
    def address(self) -> str:
        return f"sqlite:///{self.folder}/shop.db"

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.folder / "shop.db", timeout=60.0)
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    def other(self) -> Sqlite:
        """Return another database, which does not know the producer."""
        folder = self.folder / "other"
        folder.mkdir()
        return Sqlite(folder)


@dataclass(frozen=True)
class Postgres:
    """A database of the tests' own server."""

    address: str
    ddl: str = fmq.bind.ddl("postgres")

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.address)

    def other(self) -> Postgres:
        """Return another database, which does not know the producer."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS other")
            connection.execute("CREATE DATABASE other")
        return Postgres(self.address.replace("/postgres?", "/other?"))


Database = Sqlite | Postgres


def make_tables(database: Database) -> None:
    """The shop's table and the marker table, both empty."""
    with contextlib.closing(database.connect()) as connection:
        for table in ("orders", "fmq_tx"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(ORDERS)
        connection.commit()
        fmq.bind.create_table(connection)


def rows(database: Database) -> list[str]:
    """The orders that the database has committed."""
    return [name for (name,) in told(database, "SELECT name FROM orders ORDER BY name")]


def told(database: Database, statement: str) -> list[tuple[Any, ...]]:
    """Run `statement` in a transaction on a new connection, and return its rows."""
    with contextlib.closing(database.connect()) as connection:
        cursor = connection.execute(statement)
        found = cursor.fetchall() if cursor.description else []
        connection.commit()
    return found
