"""The shop's database in a real PostgreSQL."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import psycopg

import fmq.bind
from crash_tests.bound.steps import Stage, Step
from fmq.bind.postgres import LOOK, MARK

Query = psycopg.abc.Query


class SteppingPostgres(psycopg.Connection[Any]):
    """Tells of its steps. Inside the commit, COMMIT has been sent and the answer not been read."""

    stage: Stage
    _commits = False

    def execute(self, query: Query, *arguments: Any, **options: Any) -> psycopg.Cursor[Any]:
        if query != MARK:
            return super().execute(query, *arguments, **options)
        with self.stage.marking():
            return super().execute(query, *arguments, **options)

    def commit(self) -> None:
        if not self.stage.is_marked:
            super().commit()
            return
        self.stage.reached(Step.PREPARED)
        self._commits = True
        try:
            super().commit()
        finally:
            self._commits = False
        self.stage.reached(Step.COMMITTED)

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        return super().wait(self._interrupted(gen) if self._commits else gen, *arguments, **options)

    def _interrupted(self, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same, but that something may happen once it waits for the server."""
        try:
            waits_for = next(generator)
            self.stage.reached(Step.COMMITTING)
            while True:
                waits_for = generator.send((yield waits_for))
        except StopIteration as end:
            return end.value


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
            row = connection.execute(LOOK, (store, tx_id)).fetchone()
            return None if row is None else str(row[0])

    def cut(self, connection: psycopg.Connection[Any]) -> None:
        with socket.socket(fileno=os.dup(connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)

    def process_of(self, connection: psycopg.Connection[Any]) -> int:
        return connection.info.backend_pid
