"""Spark reads a journal as a stream: each message once, whatever ends a query."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import fmq
from tests.spark import stream_child
from tests.spark.reading import Reader
from tests.spark.streaming import Stream, end_offset, shown_by_queue
from tools.spark_streams import caught_up, ended


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path / "checkpoint")


def test_each_message_comes_once_and_in_order_over_restarts(stream: Stream, tmp_path: Path) -> None:
    """Run queries that end by themselves, with limits, and send messages between them."""
    path = str(tmp_path / "shop")
    with fmq.open(path, fmq.Options(segment_bytes=4096)) as engine:
        for number in range(2):
            engine.send_many("orders", [b"%d" % number] * 7)
            engine.send("emails", b"%d" % number)
            with engine.transaction() as tx:
                tx.send_many("orders", [b"in a transaction"] * 3)
                tx.send("emails", b"x" * 1500)
            engine.checkpoint()
            sizes = [len(batch) for batch in stream.drain(path, maxRecordsPerTrigger="7")]
            assert sizes == [7, 5]
        assert stream.drain(path) == []
    assert stream.by_queue() == shown_by_queue(path)


def test_limits_hold_and_no_batch_splits_a_transaction(shop: Reader, stream: Stream) -> None:
    batches = stream.drain(shop.path, maxRecordsPerTrigger="390", maxBytesPerTrigger="20000")
    for batch in batches:
        assert len(batch) <= 390
        positions = [row.position for row in batch]
        assert max(positions) - min(positions) < 20000
    assert len(batches) > 4
    assert stream.by_queue() == shown_by_queue(shop.path)
    transactions = [{row.tx_id for row in batch if row.tx_id} for batch in batches]
    assert sum(map(len, transactions)) == len(set().union(*transactions))


def test_a_stream_beside_an_engine_gets_whole_transactions(stream: Stream, tmp_path: Path) -> None:
    """Undecided messages come when they are committed.

    The engine sends from within the batches, so that each batch has new messages after it.
    """
    path = str(tmp_path / "shop")
    with fmq.open(path) as engine:
        engine.send("orders", b"old")
        engine.checkpoint()

        def take(batch: DataFrame, number: int) -> None:
            stream.take(batch, number)
            number = len(stream.rows) // 4
            if stream.rows and number < 3:
                with engine.transaction(tx_id=f"tx-{number}") as tx:
                    tx.send_many("orders", [b"o"] * 2)
                    tx.send_many("emails", [b"e"] * 2)
                engine.checkpoint()

        rows = stream.spark.readStream.format("fmq").option("startingPosition", "latest")
        writer = rows.load(path).writeStream.foreachBatch(take)
        query = caught_up(writer.option("checkpointLocation", stream.checkpoint).start)
        try:
            assert stream.rows == []
            undecided = engine.transaction(tx_id="late")
            undecided.send("orders", b"late")
            undecided.prepare()
            engine.send("orders", b"first")
            engine.checkpoint()
            query.processAllAvailable()
            undecided.commit()
            engine.checkpoint()
            query.processAllAvailable()
        finally:
            query.stop()
    assert [[row.tx_id for row in batch] for batch in stream.batches if batch] == [
        [None],
        ["tx-0"] * 4,
        ["tx-1"] * 4,
        ["tx-2"] * 4,
        ["late"],
    ]


def test_new_directories_join_a_stream_over_several(stream: Stream, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    sent = set()

    def send(name: str, body: str) -> None:
        sent.add((name, body))
        with fmq.open(fleet / name) as engine:
            engine.send("orders", body.encode())

    send("one", "1")
    send("two", "1")
    query = caught_up(lambda: stream.start(str(fleet / "*")))
    try:
        send("one", "2")
        send("three", "1")
        query.processAllAvailable()
    finally:
        query.stop()
    send("three", "2")
    stream.drain(str(fleet / "*"))
    seen = [(row.engine, row.body.decode()) for row in stream.rows]
    assert len(seen) == len(sent)
    assert set(seen) == sent


def test_a_gap_fails_a_stream_or_is_skipped_and_counted(stream: Stream, tmp_path: Path) -> None:
    path = str(tmp_path / "shop")
    options = fmq.Options(segment_bytes=4096, retain_bytes=3 * 4096)
    with fmq.open(path, options, background=False) as engine:
        engine.send("orders", b"first")
        engine.checkpoint()
        assert [len(batch) for batch in stream.drain(path)] == [1]
        for _ in range(40):
            engine.send("orders", b"x" * 800)
        engine.checkpoint()
        with pytest.raises(StreamingQueryException, match=r"the journal from position \d+ up to"):
            stream.drain(path)
        query = ended(lambda: stream.start(path, now=True, onGap="skip"))
        [queue] = engine.queues("orders")
        gap = engine.stats().first_position
    offsets = [row["offset"] for row in stream.rows]
    assert offsets == [0, *range(queue.first, queue.next)]
    assert gap - 4096 < end_offset(query)["skipped_bytes"] < gap


def test_a_killed_query_goes_on_without_loss_or_repetition(stream: Stream, tmp_path: Path) -> None:
    """Kill it after it has written a batch and before Spark knows.

    Each batch is a file named by its number, so a repeated batch replaces itself.
    """
    path, out = tmp_path / "shop", tmp_path / "out"
    out.mkdir()
    with fmq.open(path, fmq.Options(segment_bytes=4096)) as engine:
        for number in range(50):
            engine.send("orders", b"%d" % number)
        engine.checkpoint()
        command = [sys.executable, "-m", stream_child.__name__, path, stream.checkpoint, out]
        root = Path(fmq.__file__).parent.parent
        child = subprocess.run(
            [*map(str, command), "2"], cwd=root, capture_output=True, text=True, check=False
        )
        assert child.returncode == -signal.SIGKILL, child.stderr
        before = {file.name: file.read_text() for file in out.iterdir()}
        assert list(map(len, map(str.split, before.values()))) == [20, 20]
        for number in range(50, 60):
            engine.send("orders", b"%d" % number)
        engine.checkpoint()
        stream_child.run(stream.spark, str(path), stream.checkpoint, out)
    after = {file.name: file.read_text() for file in out.iterdir()}
    assert before.items() <= after.items()
    assert sorted(int(body) for text in after.values() for body in text.split()) == [*range(60)]
