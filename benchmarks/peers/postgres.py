"""PostgreSQL as a durable queue: default settings (fsync, synchronous_commit), a table a lane.

One connection for each thread, over a unix socket. A transaction is one statement, so it costs
one round trip; two phases are the real ones, PREPARE TRANSACTION and COMMIT PREPARED; a
consumer that waits is told by NOTIFY.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import psycopg

from benchmarks.peers.programs import user_for_postgres
from benchmarks.peers.protocol import LANES, Messages
from benchmarks.peers.server import Server

SETTINGS = (
    *("-c", "listen_addresses=", "-c", "max_prepared_transactions=64"),
    *("-c", "max_wal_size=16GB", "-c", "shared_buffers=256MB"),
)
TEXT = ("--locale=C", "--encoding=UTF8")
TABLES = (
    *(
        f"CREATE TABLE IF NOT EXISTS lane{lane} (id bigserial PRIMARY KEY, body bytea)"
        for lane in range(LANES)
    ),
    "CREATE TABLE IF NOT EXISTS acked (reader text PRIMARY KEY, next bigint)",
    "INSERT INTO acked VALUES ('g', 1) ON CONFLICT DO NOTHING",
)
INSERT = "INSERT INTO lane0 (body) VALUES (%b)"
INSERT_AND_NOTIFY = f"WITH sent AS ({INSERT}) SELECT pg_notify('lane0', '')"
COPY = "COPY lane0 (body) FROM STDIN (FORMAT binary)"
TRANSACTION = (
    "WITH a AS (INSERT INTO lane0 (body) SELECT unnest(%b::bytea[])),"
    " b AS (INSERT INTO lane1 (body) SELECT unnest(%b::bytea[]))"
    " INSERT INTO lane2 (body) SELECT unnest(%b::bytea[])"
)
READ = "SELECT id, body FROM lane0 WHERE id >= %s ORDER BY id LIMIT %s"
ACK = "UPDATE acked SET next = %s WHERE reader = 'g'"
SCAN_PAGE = 10_000


class Postgres:
    """A server with its cluster in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._server = Server(user_for_postgres())
        self.tx_numbers = itertools.count(1)
        cluster = directory.absolute() / "cluster"
        self._make(cluster)
        self._server.start(
            *(
                self._server.program("postgres"),
                "-D",
                str(cluster),
                "-k",
                self._server.sockets,
                *SETTINGS,
            ),
            log=directory / "postgres.log",
            ready=self._ready,
        )

    def _make(self, cluster: Path) -> None:
        self._server.hand_over(cluster)
        if (cluster / "PG_VERSION").exists():
            return
        program = self._server.program("initdb")
        # No sync for the empty cluster: nothing is measured until the server runs. The encoding
        # must not depend on the caller's environment.
        self._server.run(program, "-D", str(cluster), "-U", "postgres", "-N", "-A", "trust", *TEXT)

    def _ready(self) -> bool:
        try:
            connection = self.connect()
        except psycopg.OperationalError:
            return False
        for statement in TABLES:
            connection.execute(statement)
        connection.close()
        return True

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        connection = psycopg.connect(
            host=self._server.sockets, user="postgres", dbname="postgres", autocommit=True
        )
        connection.prepare_threshold = 0  # prepare every statement at its first use
        return connection

    def producer(self) -> PostgresProducer:
        return PostgresProducer(self)

    def consumer(self) -> PostgresConsumer:
        return PostgresConsumer(self)

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        with self.connect() as connection, connection.cursor() as cursor, cursor.copy(COPY) as copy:
            copy.set_types(["bytea"])
            for body in itertools.chain.from_iterable(batches):
                copy.write_row((body,))

    def scan(self, kind: str) -> int:
        with self.connect() as connection, connection.transaction():
            cursor = connection.cursor("scan", binary=True)
            cursor.execute("SELECT body FROM lane0 ORDER BY id")
            return sum(len(page) for page in iter(lambda: cursor.fetchmany(SCAN_PAGE), []))

    def close(self) -> None:
        self._server.stop()

    @staticmethod
    def first_message_program() -> str:
        return (
            "import sys, time, pathlib; from benchmarks.peers.postgres import Postgres;"
            "started = time.perf_counter();"
            "store = Postgres(pathlib.Path(sys.argv[1]));"
            "opening = time.perf_counter() - started;"
            "read = store.connect().execute('SELECT body FROM lane0 ORDER BY id LIMIT 1');"
            "print(read.fetchone()[0][:20], flush=True); store.close()"
        )


class PostgresProducer:
    def __init__(self, store: Postgres) -> None:
        self._store = store
        self._connection = store.connect()
        self._cursor = self._connection.cursor()

    def send(self, body: bytes) -> None:
        self._cursor.execute(INSERT, (body,))

    def send_and_wake(self, body: bytes) -> None:
        self._cursor.execute(INSERT_AND_NOTIFY, (body,))

    def send_many(self, bodies: Sequence[bytes]) -> None:
        with self._cursor.copy(COPY) as copy:
            copy.set_types(["bytea"])
            for body in bodies:
                copy.write_row((body,))

    def transaction(self, messages: Messages) -> None:
        lanes: list[list[bytes]] = [[] for _ in range(LANES)]
        for lane, body in messages:
            lanes[lane].append(body)
        self._cursor.execute(TRANSACTION, lanes)

    def two_phase(self, messages: Messages) -> None:
        name = f"tx{next(self._store.tx_numbers)}"
        with self._connection.pipeline():
            self._cursor.execute("BEGIN")
            self.transaction(messages)
            self._cursor.execute(f"PREPARE TRANSACTION '{name}'", prepare=False)
        self._cursor.execute(f"COMMIT PREPARED '{name}'", prepare=False)


class PostgresConsumer:
    def __init__(self, store: Postgres) -> None:
        self._cursor = store.connect().cursor(binary=True)
        self._next = 1
        self._listener = store.connect()
        self._listener.execute("LISTEN lane0")

    def consume(self, limit: int) -> int:
        rows = self._cursor.execute(READ, (self._next, limit)).fetchall()
        if rows:
            self._next = int(str(rows[-1][0])) + 1
            self._cursor.execute(ACK, (self._next,))
        return len(rows)

    def wait(self) -> bytes:
        next(self._listener.notifies(stop_after=1))
        row = self._cursor.execute(READ, (self._next, 1)).fetchone()
        assert row is not None and isinstance(row[1], bytes)
        self._next = int(str(row[0])) + 1
        return row[1]
