"""lmdb as a durable queue: default flags (data and meta page synced), a database a lane.

Keys are growing numbers, so every put may append, lmdb's fast way. An ack and the status of a
two-phase transaction are keys in a database of their own. Checksums it has none.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import lmdb

from benchmarks.peers.doorbell import Doorbell
from benchmarks.peers.protocol import LANES, Messages

MAP_BYTES = 64 << 30  # address space only; the file grows as it fills
NUMBER = struct.Struct(">Q")


class Lightning:
    """An environment with a database for each lane and one for the rest."""

    def __init__(self, directory: Path) -> None:
        self.env = lmdb.open(str(directory), map_size=MAP_BYTES, max_dbs=LANES + 1)
        self.lanes = [self.env.open_db(b"lane%d" % lane) for lane in range(LANES)]
        self.notes = self.env.open_db(b"notes")
        self.bell = Doorbell()
        self.tx_numbers = itertools.count(1)
        with self.env.begin() as tx:
            self._next = [self._end(tx, lane) for lane in self.lanes]

    @staticmethod
    def _end(tx: Any, lane: Any) -> int:
        cursor = tx.cursor(lane)
        return NUMBER.unpack(cursor.key())[0] + 1 if cursor.last() else 0

    def put(self, tx: Any, lane: int, body: bytes) -> None:
        """Append to a lane; only inside a write transaction, of which lmdb allows one at a time."""
        number = self._next[lane]
        self._next[lane] = number + 1
        tx.put(NUMBER.pack(number), body, append=True, db=self.lanes[lane])

    def producer(self) -> LightningProducer:
        return LightningProducer(self)

    def consumer(self) -> LightningConsumer:
        return LightningConsumer(self)

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        with self.env.begin(write=True) as tx:
            for batch in batches:
                for body in batch:
                    self.put(tx, 0, body)

    def scan(self, kind: str) -> int:
        with self.env.begin() as tx:
            count = 0
            for _ in tx.cursor(self.lanes[0]).iternext(keys=False, values=True):
                count += 1
            return count

    def close(self) -> None:
        self.env.close()

    @staticmethod
    def first_message_program() -> str:
        return (
            "import lmdb, sys, time; started = time.perf_counter();"
            f"store = lmdb.open(sys.argv[1], map_size={MAP_BYTES}, max_dbs={LANES + 1});"
            "opening = time.perf_counter() - started;"
            "tx = store.begin(db=store.open_db(b'lane0')); cursor = tx.cursor(); cursor.first();"
            "print(cursor.value()[:20], flush=True)"
        )


class LightningProducer:
    def __init__(self, store: Lightning) -> None:
        self._store = store
        self._begin = store.env.begin

    def send(self, body: bytes) -> None:
        with self._begin(write=True) as tx:
            self._store.put(tx, 0, body)

    def send_and_wake(self, body: bytes) -> None:
        self.send(body)
        self._store.bell.ring()

    def send_many(self, bodies: Sequence[bytes]) -> None:
        store = self._store
        with self._begin(write=True) as tx:
            start = store._next[0]
            store._next[0] = start + len(bodies)
            keys = map(NUMBER.pack, range(start, start + len(bodies)))
            tx.cursor(store.lanes[0]).putmulti(list(zip(keys, bodies, strict=True)), append=True)

    def transaction(self, messages: Messages) -> None:
        with self._begin(write=True) as tx:
            for lane, body in messages:
                self._store.put(tx, lane, body)

    def two_phase(self, messages: Messages) -> None:
        store = self._store
        key = b"tx%d" % next(store.tx_numbers)
        with self._begin(write=True) as tx:
            tx.put(key, b"prepared", db=store.notes)
            for lane, body in messages:
                store.put(tx, lane, body)
        with self._begin(write=True) as tx:
            tx.put(key, b"committed", db=store.notes)


class LightningConsumer:
    def __init__(self, store: Lightning) -> None:
        self._store = store
        self._seen = 0
        with store.env.begin() as tx:
            self._next = NUMBER.unpack(tx.get(b"g", NUMBER.pack(0), db=store.notes))[0]

    def consume(self, limit: int) -> int:
        store = self._store
        with store.env.begin(write=True) as tx:
            bodies = self._read(tx, limit)
            if bodies:
                self._next += len(bodies)
                tx.put(b"g", NUMBER.pack(self._next), db=store.notes)
        return len(bodies)

    def _read(self, tx: Any, limit: int) -> list[bytes]:
        cursor = tx.cursor(self._store.lanes[0])
        if not cursor.set_range(NUMBER.pack(self._next)):
            return []
        return list(itertools.islice(cursor.iternext(keys=False, values=True), limit))

    def wait(self) -> bytes:
        self._seen = self._store.bell.wait_beyond(self._seen)
        with self._store.env.begin() as tx:
            (body,) = self._read(tx, 1)
        self._next += 1
        return body
