"""The micro-benchmark of the floor does the work that it says: its bytes are the engine's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zlib import crc32

import fmq
from benchmarks import floor, least, least_bytes
from fmq.store.bytes.decoding import decode
from fmq.store.bytes.kinds import Kind, Record, Run
from fmq.store.bytes.record import aligned
from fmq.store.journal.segment import HEADER_BYTES
from fmq.testing import FakeClock

ACK_NAMES = b"\x01\x01\0\0ga"


def fill(tx: fmq.Transaction | least.LeastTransaction) -> None:
    for i in range(10):
        tx.send(floor.TOPICS[i % 3], floor.BODY)


def records_of(path: Path) -> list[Record]:
    written, at, found = path.read_bytes(), HEADER_BYTES, []
    while written[at]:
        record = decode(written, at, at, floor.SEED)
        found.append(record)
        at += aligned(record.size)
    return found


def test_the_floor_benchmark_writes_the_same_bytes_as_fmq(tmp_path: Path) -> None:
    """Compare a send, a transaction in one phase and in two, and an ack."""
    clock = FakeClock()
    with fmq.open(tmp_path / "shop", clock=clock) as engine:
        with engine.transaction() as tx:
            for topic in floor.TOPICS:
                tx.send(topic, b"made")
        engine.create_group("g", "a")
        sent = engine.send("a", floor.BODY)
        with engine.transaction(tx_id=floor.TX_ID) as tx:
            fill(tx)
        outcome = engine.outcome(floor.TX_ID)
        tx = engine.transaction(tx_id=floor.TX_ID[::-1])
        fill(tx)
        tx.prepare()
        tx.commit()
        with engine.consumer("a", group="g") as consumer:
            consumer.poll(limit=1)[0].ack()
    [segment] = (tmp_path / "shop").glob("*.seg")
    written = segment.read_bytes()
    at, now = sent.position, clock.time_us()
    seed = crc32(written[16:32])
    made = least_bytes.message(at, 0, seed, "a", floor.BODY, 1, now)
    firsts = {"a": 2, "b": 1, "c": 1}
    one, where = least_bytes.transaction(
        at + len(made), 0, seed, floor.ten(), firsts, floor.TX_ID, now
    )
    made += one
    assert where == [
        (each.topic, each.offset, each.count, each.position) for each in outcome.receipts
    ]
    tx_id, what, number = floor.TX_ID[::-1], least_bytes.rows_of(floor.ten()), at + len(made)
    made += least_bytes.prepare(number, 0, seed, *what, tx_id, now)
    firsts = {"a": 6, "b": 4, "c": 4}
    made += least_bytes.commit(at + len(made), 0, seed, *what, firsts, tx_id, now, number, now)[0]
    made += least_bytes.ack(at + len(made), 0, seed, ACK_NAMES, 0, 1, now)
    assert written[at : at + len(made)] == made


def test_the_least_engine_writes_sound_records_with_right_offsets(tmp_path: Path) -> None:
    engine = least.LeastEngine(least.BareFile(tmp_path / "file"), floor.TOPICS, floor.SEED)
    sent = engine.send("a", floor.BODY)
    with engine.transaction() as one:
        fill(one)
    two = engine.transaction()
    fill(two)
    two.prepare()
    assert engine.read("b", 3) == []
    two.commit()
    again = engine.send("b", floor.BODY)
    consumer = engine.consumer("a", "g")
    assert consumer.poll() == (0, floor.BODY)
    consumer.ack(0)
    assert (sent.offset, sent.position, again.offset) == (0, HEADER_BYTES, 6)
    shown = (Kind.MESSAGE, Kind.TX_MESSAGE)
    found = [
        (record.offset, record.count) if isinstance(record, Run) and record.kind in shown
        else Kind(record.kind).name
        for record in records_of(tmp_path / "file")
    ]  # fmt: skip
    prepared = ["PREPARE", *["PRE_MESSAGE"] * 3]
    transactions = [(1, 4), (0, 3), (0, 3), "COMMIT", *prepared, (5, 4), (3, 3), (3, 3), "COMMIT"]
    assert found == [(0, 1), *transactions, (6, 1), "ACK"]


def test_eight_threads_of_the_least_engine_lose_no_send(tmp_path: Path) -> None:
    """Each gets its offsets, and each record is in the file once, in order."""
    engine = least.LeastEngine(least.BareFile(tmp_path / "file"), floor.TOPICS, floor.SEED)

    def send(_: int) -> list[int]:
        return [engine.send("a", floor.BODY).offset for _ in range(40)]

    with ThreadPoolExecutor(8) as threads:
        sent = [*threads.map(send, range(8))]
    assert sorted(offset for each in sent for offset in each) == [*range(320)]
    assert all(each == sorted(each) for each in sent)
    records = records_of(tmp_path / "file")
    assert [run.offset for run in records if isinstance(run, Run)] == [*range(320)]
    assert len(engine.read("a", 0)) == 320
