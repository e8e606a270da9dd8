"""The shop's database in a real PostgreSQL."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

import psycopg

import fmq.bind
from crash_tests.bound.steps import Stage
from fmq.bind.dialects import key_of
from fmq.bind.postgres import STATEMENTS

Query = psycopg.abc.Query


class SteppingPostgres(psycopg.Connection[Any]):
    stage: Stage

    def execute(self, query: Query, *arguments: Any, **options: Any) -> psycopg.Cursor[Any]:
        if query != STATEMENTS.insert:
            return super().execute(query, *arguments, **options)
        with self.stage.marking():
            return super().execute(query, *arguments, **options)

    def commit(self) -> None:
        self.stage.committing(super().commit)


@dataclass(frozen=True, slots=True)
class Postgres:
    """A database of a server of our own, reached over a socket of its own."""

    address: str

    @property
    def error(self) -> type[Exception]:
        return psycopg.Error

    def make(self) -> None:
        with psycopg.connect(self.address) as connection:
            connection.execute("DROP TABLE IF EXISTS orders, fmq_tx")
            connection.execute("CREATE TABLE orders (name text PRIMARY KEY)")
            fmq.bind.create_table(connection)

    def connect(self, stage: Stage) -> SteppingPostgres:
        connection = SteppingPostgres.connect(self.address)
        connection.stage = stage
        return connection

    def insert(self, connection: psycopg.Connection[Any], order: str) -> None:
        connection.execute("INSERT INTO orders VALUES (%s)", (order,))

    def rows(self) -> list[str]:
        with psycopg.connect(self.address) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM orders")]

    def look(self, store: str, tx_id: str) -> str | None:
        with psycopg.connect(self.address) as connection:
            row = connection.execute(STATEMENTS.look, key_of(store, tx_id)).fetchone()
            return None if row is None else str(row[0])

    def cut(self, connection: psycopg.Connection[Any], *, answers_only: bool) -> None:
        with socket.socket(fileno=os.dup(connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RD if answers_only else socket.SHUT_RDWR)

    def process_of(self, connection: psycopg.Connection[Any]) -> int:
        return connection.info.backend_pid
