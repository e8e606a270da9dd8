"""rocksdict (RocksDB) as a durable queue: raw mode, its write-ahead log synced at every write.

Keys are a lane's letter and a growing number. An ack and the status of a two-phase transaction
are keys, too. It compresses and keeps checksums, both by default.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from benchmarks.peers.doorbell import Doorbell
from benchmarks.peers.protocol import LANES, Messages

KEY = struct.Struct(">cQ")
LANE = [b"a", b"b", b"c"]
ACKED = b"z-acked"


class Rocks:
    """A database and the next number of each lane."""

    def __init__(self, directory: Path) -> None:
        self.db: Any = Rdict(str(directory / "rocks"), Options(raw_mode=True))
        self.synced = WriteOptions()
        self.synced.sync = True
        self.lane0_only = ReadOptions()
        self.lane0_only.set_iterate_upper_bound(LANE[1])
        self.bell = Doorbell()
        self.tx_numbers = itertools.count(1)
        # itertools.count is atomic under the interpreter's lock: numbers need no lock of their own.
        self.next = [itertools.count(self._end(lane)) for lane in range(LANES)]

    def _end(self, lane: int) -> int:
        last = next(
            iter(self.db.keys(backwards=True, from_key=KEY.pack(LANE[lane], 2**64 - 1))), b""
        )
        return KEY.unpack(last)[1] + 1 if last.startswith(LANE[lane]) else 0

    def key(self, lane: int) -> bytes:
        return KEY.pack(LANE[lane], next(self.next[lane]))

    def values(self, start: int) -> Iterator[bytes]:
        """The bodies of lane 0 from number `start` on."""
        values = self.db.values(from_key=KEY.pack(LANE[0], start), read_opt=self.lane0_only)
        return iter(values)

    def batch(self, messages: Iterable[tuple[int, bytes]]) -> Any:
        batch = WriteBatch(raw_mode=True)
        for lane, body in messages:
            batch.put(self.key(lane), body)
        return batch

    def producer(self) -> RocksProducer:
        return RocksProducer(self)

    def consumer(self) -> RocksConsumer:
        return RocksConsumer(self)

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        for bodies in batches:
            self.db.write(self.batch((0, body) for body in bodies))
        self.db.flush_wal(True)

    def scan(self, kind: str) -> int:
        count = 0
        for _ in self.values(0):
            count += 1
        return count

    def close(self) -> None:
        self.db.close()

    @staticmethod
    def first_message_program() -> str:
        return (
            "import sys, time; from rocksdict import Options, Rdict;"
            "started = time.perf_counter();"
            "store = Rdict(sys.argv[1] + '/rocks', Options(raw_mode=True));"
            "opening = time.perf_counter() - started;"
            "print(next(iter(store.values(from_key=b'a')))[:20], flush=True)"
        )


class RocksProducer:
    def __init__(self, store: Rocks) -> None:
        self._store = store
        self._synced = store.synced

    def send(self, body: bytes) -> None:
        self._store.db.put(self._store.key(0), body, write_opt=self._synced)

    def send_and_wake(self, body: bytes) -> None:
        self.send(body)
        self._store.bell.ring()

    def send_many(self, bodies: Sequence[bytes]) -> None:
        self.transaction([(0, body) for body in bodies])

    def transaction(self, messages: Messages) -> None:
        self._store.db.write(self._store.batch(messages), write_opt=self._synced)

    def two_phase(self, messages: Messages) -> None:
        store = self._store
        key = b"z-tx%d" % next(store.tx_numbers)
        batch = store.batch(messages)
        batch.put(key, b"prepared")
        store.db.write(batch, write_opt=self._synced)
        store.db.put(key, b"committed", write_opt=self._synced)


class RocksConsumer:
    def __init__(self, store: Rocks) -> None:
        self._store = store
        self._next = struct.unpack(">Q", store.db.get(ACKED, bytes(8)))[0]
        self._seen = 0

    def consume(self, limit: int) -> int:
        bodies = self._read(limit)
        if bodies:
            self._next += len(bodies)
            self._store.db.put(ACKED, struct.pack(">Q", self._next), write_opt=self._store.synced)
        return len(bodies)

    def _read(self, limit: int) -> list[bytes]:
        return list(itertools.islice(self._store.values(self._next), limit))

    def wait(self) -> bytes:
        self._seen = self._store.bell.wait_beyond(self._seen)
        (body,) = self._read(1)
        self._next += 1
        return body
