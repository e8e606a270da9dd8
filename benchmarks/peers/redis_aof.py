"""Redis as a durable queue: append-only file, appendfsync always, a stream a lane.

A consumer keeps the last id it has done as a key: one sync an ack, where consumer groups would
cost two. The prepared part of a two-phase transaction is a list of its own, and committing moves it
into the streams within one MULTI. Everything goes over a unix socket.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import redis

from benchmarks.peers.programs import find_program
from benchmarks.peers.protocol import LANES, Messages
from benchmarks.peers.server import Server

LANE = [f"lane{lane}" for lane in range(LANES)]
SETTINGS = (
    *("--port", "0", "--daemonize", "no", "--save", "", "--appendonly", "yes"),
    *("--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"),
)
COMMIT = """
local prepared = redis.call('LRANGE', KEYS[1], 0, -1)
for i = 1, #prepared, 2 do redis.call('XADD', prepared[i], '*', 'b', prepared[i + 1]) end
redis.call('DEL', KEYS[1])
"""
SCAN_PAGE = 10_000


class RedisAof:
    """A server with its files in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._server = Server()
        self.socket = f"{self._server.sockets}/redis"
        self.tx_numbers = itertools.count(1)
        program = find_program("redis-server")
        assert program is not None
        self._server.start(
            *(program, "--dir", str(directory.absolute()), "--unixsocket", self.socket, *SETTINGS),
            log=directory / "redis.log",
            ready=self._ready,
        )

    def connect(self) -> Any:
        return redis.Redis(unix_socket_path=self.socket)

    def _ready(self) -> bool:
        try:
            return bool(self.connect().ping())
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False

    def producer(self) -> RedisProducer:
        return RedisProducer(self)

    def consumer(self) -> RedisConsumer:
        return RedisConsumer(self)

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        client = self.connect()
        for batch in batches:
            pipeline = client.pipeline(transaction=False)
            for body in batch:
                pipeline.xadd(LANE[0], {"b": body})
            pipeline.execute()

    def scan(self, kind: str) -> int:
        client = self.connect()
        count, start = 0, b"-"
        while page := client.xrange(LANE[0], start, count=SCAN_PAGE):
            count += len(page)
            start = b"(" + page[-1][0]
        return count

    def close(self) -> None:
        self._server.stop()

    @staticmethod
    def first_message_program() -> str:
        return (
            "import sys, time, pathlib; from benchmarks.peers.redis_aof import RedisAof;"
            "started = time.perf_counter();"
            "store = RedisAof(pathlib.Path(sys.argv[1]));"
            "opening = time.perf_counter() - started;"
            "print(store.connect().xrange('lane0', count=1)[0][1][b'b'][:20], flush=True);"
            "store.close()"
        )


class RedisProducer:
    def __init__(self, store: RedisAof) -> None:
        self._store = store
        self._client = store.connect()
        self._commit = self._client.register_script(COMMIT)

    def send(self, body: bytes) -> None:
        self._client.xadd(LANE[0], {"b": body})

    def send_and_wake(self, body: bytes) -> None:
        self.send(body)

    def send_many(self, bodies: Sequence[bytes]) -> None:
        self.transaction([(0, body) for body in bodies])

    def transaction(self, messages: Messages) -> None:
        pipeline = self._client.pipeline(transaction=True)
        for lane, body in messages:
            pipeline.xadd(LANE[lane], {"b": body})
        pipeline.execute()

    def two_phase(self, messages: Messages) -> None:
        key = f"tx{next(self._store.tx_numbers)}"
        self._client.rpush(key, *itertools.chain(*((LANE[lane], body) for lane, body in messages)))
        self._commit(keys=[key])


class RedisConsumer:
    def __init__(self, store: RedisAof) -> None:
        self._client = store.connect()
        self._last: bytes = self._client.get("acked") or b"0-0"

    def consume(self, limit: int) -> int:
        page = self._client.xrange(LANE[0], b"(" + self._last, count=limit)
        if page:
            self._last = page[-1][0]
            self._client.set("acked", self._last)
        return len(page)

    def wait(self) -> bytes:
        ((_, page),) = self._client.xread({LANE[0]: self._last}, count=1, block=0)
        ((self._last, fields),) = page
        return bytes(fields[b"b"])
