"""A client that breaks the rules, beside one that keeps them, over connections in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fmq import Engine
from fmq.server.session import Session
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.wire.frames import FAILED, VERSION, Frame, Op, Splitter, frame
from fmq.wire.values import decode_error, encode_values
from tests.small import bodies, opened


class Recording(MemoryServer):
    """A server that keeps what its clients send."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        self.recorded = b""
        super().__init__(engine, clock)

    def deliver(self, session: Session, data: bytes) -> None:
        self.recorded += data
        super().deliver(session, data)


class Hostile:
    """The end of a connection where any bytes are sent."""

    def __init__(self, server: MemoryServer, *, token: bytes | None = None) -> None:
        self.server = server
        self._closed = False
        self._splitter = Splitter(1 << 30)
        self.answers: list[Frame] = []
        self.resumed = 0
        assert server.host is not None
        self.session = Session(server.host, self._take, self._close, self._resume, token)

    def _take(self, data: bytes) -> None:
        self.answers += self._splitter.feed(data)

    def _close(self) -> None:
        self._closed = True

    def _resume(self) -> None:
        self.resumed += 1

    def has_closed(self) -> bool:
        """Return whether the server has closed the connection."""
        return self._closed

    def hello(self, *more: object) -> None:
        """Say who it is."""
        said = encode_values([*(more or (VERSION, b"h" * CLIENT_BYTES, None, "host", 1))])
        self.send(frame(Op.HELLO, 1, said))

    def send(self, data: bytes) -> None:
        """Send bytes, and let the server do what it can."""
        self.session.received(data)
        self.server.loop.run()

    def error(self) -> Exception:
        """Return the error of the last answer."""
        answer = self.answers[-1]
        assert answer.flags & FAILED
        return decode_error(answer.payload)


@contextmanager
def served() -> Iterator[Recording]:
    """An engine with an undecided transaction; at the end it still has to serve others."""
    clock = FakeClock()
    with opened(CrashDisk(), clock, segment_bytes=1 << 20) as engine:
        engine.send_many("t", [b"1", b"2", b"3"])
        tx = engine.transaction(tx_id="U", producer="p", check_after=0.0)
        tx.send("t", b"4")
        tx.prepare()
        server = Recording(engine, clock)
        good = server.connect()
        good.send("good", b"before")
        yield server
        good.send("good", b"after")
        assert bodies(good, "good")[-1] == b"after"
        assert engine.stats().failure is None


def work(server: Recording) -> bytes:
    """Return what a client sends that calls all that there is."""
    server.recorded = b""
    client = server.connect()
    client.send("t", b"1", key="k", producer="p")
    client.send_many("t", [b"5", b"6"])
    with client.transaction(tx_id="T", producer="p") as tx:
        tx.send("t", b"2")
        tx.mark("m", 1, b"d", expect=-1)
    with client.transaction() as tx:
        tx.send("t", b"3")
        tx.prepare()
    with client.consumer("t", group="g") as consumer:
        first, second, third, *_ = consumer.poll(limit=4)
        first.ack()
        second.release()
        with client.transaction() as tx:
            tx.ack(third)
        again, *_ = consumer.poll(limit=1)
        with client.transaction() as tx:
            tx.ack(again)
            tx.rollback()
    client.read("t", limit=2)
    (question,) = client.feedback.ask("p")
    client.feedback.answer(question, "unknown")
    client.undecided()
    client.settle(timeout=0.0)
    client.mark("m")
    client.groups()
    client.queues("t")
    client.sync()
    client.outcome("T")
    client.decide("U", "commit")
    return server.recorded
