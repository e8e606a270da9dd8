"""sqlite3 with a group commit made by hand: one thread writes for all, one sync for each group.

This is what a careful Python user builds when eight threads share a database: callers put their
statements into a queue and sleep on a lock of their own; the writer takes whatever waits, runs
it as one SQL transaction, commits, and wakes them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.peers.protocol import Messages
from benchmarks.peers.sqlite import (
    COMMIT,
    INSERT,
    INSERT_PREPARED,
    PREPARE,
    Sqlite,
    SqliteConsumer,
)

Statements = list[tuple[str, tuple[object, ...]]]
Request = tuple[Statements, threading.Lock]

GROUP_MAX = 256


class SqliteGroup:
    """A database file, its connection, and the thread that alone writes with it."""

    def __init__(self, directory: Path) -> None:
        self.store = Sqlite(directory)
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def run(self, statements: Statements) -> None:
        """Have the statements committed together, with others' or alone."""
        done = threading.Lock()
        done.acquire()
        self._requests.put((statements, done))
        done.acquire()

    def _write(self) -> None:
        execute = self.store.connection.execute
        while (first := self._requests.get()) is not None:
            group = [first, *self._waiting()]
            with self.store.lock:
                execute("BEGIN IMMEDIATE")
                for statements, _ in group:
                    for statement, values in statements:
                        execute(statement, values)
                execute("COMMIT")
            for _, done in group:
                done.release()

    def _waiting(self) -> Iterable[Request]:
        for _ in range(GROUP_MAX):
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return
            if request is None:
                self._requests.put(None)
                return
            yield request

    def producer(self) -> GroupProducer:
        return GroupProducer(self)

    def consumer(self) -> SqliteConsumer:
        return self.store.consumer()

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        self.store.load(batches, singly=singly)

    def scan(self, kind: str) -> int:
        return self.store.scan(kind)

    def close(self) -> None:
        self._requests.put(None)
        self._writer.join()
        self.store.close()

    @staticmethod
    def first_message_program() -> str:
        return Sqlite.first_message_program()


class GroupProducer:
    def __init__(self, group: SqliteGroup) -> None:
        self._group = group

    def send(self, body: bytes) -> None:
        self._group.run([(INSERT[0], (body,))])

    def send_and_wake(self, body: bytes) -> None:
        self.send(body)
        self._group.store.bell.ring()

    def send_many(self, bodies: Sequence[bytes]) -> None:
        self._group.run([(INSERT[0], (body,)) for body in bodies])

    def transaction(self, messages: Messages) -> None:
        self._group.run([(INSERT[lane], (body,)) for lane, body in messages])

    def two_phase(self, messages: Messages) -> None:
        tx = next(self._group.store.tx_numbers)
        prepared: Statements = [(PREPARE, (tx,))]
        prepared += [(INSERT_PREPARED[lane], (body, tx)) for lane, body in messages]
        self._group.run(prepared)
        self._group.run([(COMMIT, (tx,))])
