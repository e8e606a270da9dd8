"""The micro-benchmark of the floor does the work that it says: its bytes are the engine's own."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import fmq
from benchmarks import floor
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
    message = floor.message(start, 0, seed, b"a", 1, now)
    begun = start + len(message)
    offsets = {b"a": 2, b"b": 1, b"c": 1}
    transaction = floor.transaction(begun, 0, seed, offsets, now)
    assert outcome.receipts[0].position == begun
    assert written[start : begun + len(transaction)] == message + transaction
