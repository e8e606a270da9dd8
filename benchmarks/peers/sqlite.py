"""sqlite3 as a durable queue: write-ahead log, synchronous=FULL, a table a lane.

One connection behind a lock: with a connection a thread, writers wait for each other in
sleeps of SQLite's busy handler and get less done. An ack is a row with the next id to read,
and a two-phase transaction has a row with its status, as people build it: messages are
inserted with their transaction and count as published once its status says so.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.peers.doorbell import Doorbell
from benchmarks.peers.protocol import LANES, Messages

SETTINGS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL")
TABLES = (
    *(
        f"CREATE TABLE IF NOT EXISTS lane{lane} (id INTEGER PRIMARY KEY, body BLOB, tx INTEGER)"
        for lane in range(LANES)
    ),
    "CREATE TABLE IF NOT EXISTS acked (reader TEXT PRIMARY KEY, next INTEGER) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS status (tx INTEGER PRIMARY KEY, state TEXT)",
    "INSERT OR IGNORE INTO acked VALUES ('g', 1)",
)
INSERT = tuple(f"INSERT INTO lane{lane} (body) VALUES (?)" for lane in range(LANES))
INSERT_PREPARED = tuple(f"INSERT INTO lane{lane} (body, tx) VALUES (?, ?)" for lane in range(LANES))
PREPARE = "INSERT INTO status VALUES (?, 'prepared')"
COMMIT = "UPDATE status SET state = 'committed' WHERE tx = ?"
READ = "SELECT id, body FROM lane0 WHERE id >= ? ORDER BY id LIMIT ?"
ACK = "UPDATE acked SET next = ? WHERE reader = 'g'"


def connect(directory: Path) -> sqlite3.Connection:
    """A connection that commits what it is told to, as durably as WAL mode can."""
    connection = sqlite3.connect(
        directory / "store.db", isolation_level=None, check_same_thread=False, timeout=60
    )
    for statement in (*SETTINGS, *TABLES):
        connection.execute(statement)
    return connection


class Sqlite:
    """A database file and its one connection."""

    def __init__(self, directory: Path) -> None:
        self.connection = connect(directory)
        self.lock = threading.Lock()
        self.bell = Doorbell()
        self.tx_numbers = itertools.count(1)

    def producer(self) -> SqliteProducer:
        return SqliteProducer(self)

    def consumer(self) -> SqliteConsumer:
        return SqliteConsumer(self)

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        for batch in batches:
            self.connection.executemany(INSERT[0], [(body,) for body in batch])
        self.connection.execute("COMMIT")

    def scan(self, kind: str) -> int:
        rows = self.connection.execute("SELECT body FROM lane0 ORDER BY id")
        return sum(len(rows_read) for rows_read in iter(lambda: rows.fetchmany(10_000), []))

    def close(self) -> None:
        self.connection.close()  # and the log is moved into the database, and removed

    @staticmethod
    def first_message_program() -> str:
        return (
            "import sqlite3, sys, time; started = time.perf_counter();"
            "store = sqlite3.connect(sys.argv[1] + '/store.db');"
            "row = store.execute('SELECT body FROM lane0 ORDER BY id LIMIT 1').fetchone();"
            "opening = time.perf_counter() - started;"  # connect() alone opens no file
            "print(row[0][:20], flush=True)"
        )


class SqliteProducer:
    def __init__(self, store: Sqlite) -> None:
        self._store = store
        self._execute = store.connection.execute

    def send(self, body: bytes) -> None:
        with self._store.lock:
            self._execute(INSERT[0], (body,))

    def send_and_wake(self, body: bytes) -> None:
        self.send(body)
        self._store.bell.ring()

    def send_many(self, bodies: Sequence[bytes]) -> None:
        with self._store.lock:
            self._execute("BEGIN IMMEDIATE")
            self._store.connection.executemany(INSERT[0], [(body,) for body in bodies])
            self._execute("COMMIT")

    def transaction(self, messages: Messages) -> None:
        with self._store.lock:
            self._execute("BEGIN IMMEDIATE")
            for lane, body in messages:
                self._execute(INSERT[lane], (body,))
            self._execute("COMMIT")

    def two_phase(self, messages: Messages) -> None:
        tx = next(self._store.tx_numbers)
        with self._store.lock:
            self._execute("BEGIN IMMEDIATE")
            self._execute(PREPARE, (tx,))
            for lane, body in messages:
                self._execute(INSERT_PREPARED[lane], (body, tx))
            self._execute("COMMIT")
        with self._store.lock:
            self._execute(COMMIT, (tx,))


class SqliteConsumer:
    def __init__(self, store: Sqlite) -> None:
        self._store = store
        self._execute = store.connection.execute
        self._next = int(self._execute("SELECT next FROM acked").fetchone()[0])
        self._seen = 0

    def consume(self, limit: int) -> int:
        with self._store.lock:
            rows = self._execute(READ, (self._next, limit)).fetchall()
            if rows:
                self._next = rows[-1][0] + 1
                self._execute(ACK, (self._next,))
        return len(rows)

    def wait(self) -> bytes:
        self._seen = self._store.bell.wait_beyond(self._seen)
        with self._store.lock:
            number, body = self._execute(READ, (self._next, 1)).fetchone()
        self._next = number + 1
        return bytes(body)
