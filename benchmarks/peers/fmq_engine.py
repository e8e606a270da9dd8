"""fmq itself, with the default options and, as another subject, holding the interpreter's lock.

A lane is a topic. Everything is durable when a call returns, except while a stock is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import fmq
from benchmarks.peers.protocol import LANES, Messages

TOPIC = [f"lane{lane}" for lane in range(LANES)]
WAIT_SECONDS = 30.0
SCAN_PAGE = 1000


class FmqEngine:
    """An engine with default options."""

    hold_gil = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.engine = self._open(fmq.Options(hold_gil=self.hold_gil))

    def _open(self, options: fmq.Options) -> fmq.Engine:
        return fmq.open(self._directory / "fmq", options=options)

    def producer(self) -> FmqProducer:
        return FmqProducer(self.engine)

    def consumer(self) -> FmqConsumer:
        return FmqConsumer(self.engine)

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        if not singly:
            for batch in batches:
                self.engine.send_many(TOPIC[0], batch)
            return
        # Nine thousand synced sends a second would take ten minutes for five million.
        self.engine.close()
        self.engine = self._open(fmq.Options(sync="interval"))
        for batch in batches:
            for body in batch:
                self.engine.send(TOPIC[0], body)
        self.engine.sync()

    def scan(self, kind: str) -> int:
        offset = 0
        while batch := self.engine.read_batch(TOPIC[0], offset=offset, limit=SCAN_PAGE):
            offset += len(batch.bodies) if kind == "bodies" else len(batch.messages)
        return offset

    def close(self) -> None:
        self.engine.close()

    @staticmethod
    def first_message_program() -> str:
        return (
            "import sys, time, fmq; started = time.perf_counter();"
            "store = fmq.open(sys.argv[1] + '/fmq');"
            "opening = time.perf_counter() - started;"
            "print(store.read('lane0', limit=1)[0].body[:20], flush=True)"
        )


class FmqHoldingGil(FmqEngine):
    """An engine that keeps the interpreter's lock while the disk syncs."""

    hold_gil = True


class FmqProducer:
    def __init__(self, engine: fmq.Engine) -> None:
        self._engine = engine

    def send(self, body: bytes) -> None:
        self._engine.send(TOPIC[0], body)

    def send_and_wake(self, body: bytes) -> None:
        self._engine.send(TOPIC[0], body)

    def send_many(self, bodies: Sequence[bytes]) -> None:
        self._engine.send_many(TOPIC[0], bodies)

    def transaction(self, messages: Messages) -> None:
        with self._engine.transaction() as tx:
            for lane, body in messages:
                tx.send(TOPIC[lane], body)

    def two_phase(self, messages: Messages) -> None:
        tx = self._engine.transaction()
        for lane, body in messages:
            tx.send(TOPIC[lane], body)
        tx.prepare()
        tx.commit()


class FmqConsumer:
    def __init__(self, engine: fmq.Engine) -> None:
        self._consumer = engine.consumer(TOPIC[0], group="g")
        self._delivery: fmq.Delivery | None = None

    def consume(self, limit: int) -> int:
        if limit == 1:
            deliveries = self._consumer.poll(limit=1, timeout=0)
            for delivery in deliveries:
                delivery.ack()
            return len(deliveries)
        batch = self._consumer.poll_batch(limit=limit, timeout=0)
        if batch is None:
            return 0
        count = len(batch.bodies)
        batch.ack()
        return count

    def wait(self) -> bytes:
        # The ack of the one before is durable here, while the producer pauses, and not measured.
        if self._delivery is not None:
            self._delivery.ack()
        (self._delivery,) = self._consumer.poll(limit=1, timeout=WAIT_SECONDS)
        return bytes(self._delivery.message.body)
