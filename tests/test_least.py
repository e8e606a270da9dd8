"""The micro-benchmark of the floor does the work that it says: its bytes are the engine's own."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import fmq
from benchmarks import floor, least
from fmq.store.decoding import decode
from fmq.store.kinds import Kind, Run
from fmq.store.record import aligned
from fmq.store.segment import HEADER_BYTES
from fmq.testing import FakeClock


def test_the_bytes_of_the_floor_are_those_that_fmq_writes(tmp_path: Path) -> None:
    """Byte for byte: a send, and a transaction of ten messages to three queues."""
    clock = FakeClock()
    with fmq.open(tmp_path / "shop", clock=clock) as engine:
        with engine.transaction() as tx:
            for topic in floor.TOPICS:
                tx.send(topic, b"made")
        sent = engine.send("a", floor.BODY)
        with engine.transaction(tx_id=floor.TX_ID) as tx:
            for i in range(10):
                tx.send(floor.TOPICS[i % 3], floor.BODY)
        outcome = engine.outcome(floor.TX_ID)
    [segment] = (tmp_path / "shop").glob("*.seg")
    written = segment.read_bytes()
    start, now = sent.position, clock.time_us()
    header = written[:64]
    seed = crc32(header[16:32])
    message = least.message(start, 0, seed, "a", floor.BODY, 1, now)
    begun = start + len(message)
    firsts = {"a": 2, "b": 1, "c": 1}
    bytes_of, where = least.transaction(begun, 0, seed, floor.ten(), firsts, floor.TX_ID, now)
    assert written[start : begun + len(bytes_of)] == message + bytes_of
    assert where == [
        (each.topic, each.offset, each.count, each.position) for each in outcome.receipts
    ]


def test_the_least_of_an_engine_writes_those_bytes(tmp_path: Path) -> None:
    """Sound records, one behind the other, with the offsets that the engine gives."""
    engine = least.LeastEngine(least.BareFile(tmp_path / "file"), floor.TOPICS, 77)
    sent = engine.send("a", floor.BODY)
    with engine.transaction() as tx:
        for i in range(10):
            tx.send(floor.TOPICS[i % 3], floor.BODY)
    again = engine.send("b", floor.BODY)
    assert (sent.offset, sent.position, again.offset) == (0, HEADER_BYTES, 3)
    written, at, found = (tmp_path / "file").read_bytes(), HEADER_BYTES, []
    while written[at]:
        record = decode(written, at, at, 77)
        found.append((record.kind, record.offset, record.count) if isinstance(record, Run) else ())
        at += aligned(record.size)
    one, three = (Kind.MESSAGE, 0, 1), (Kind.TX_MESSAGE, 0, 3)
    assert found == [one, (Kind.TX_MESSAGE, 1, 4), three, three, (), (Kind.MESSAGE, 3, 1)]
