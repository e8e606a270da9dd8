"""Offsets of a stream, asked for as Spark asks for them, without a Spark to ask.

The directories and their engines are real.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

import fmq
from fmq.basics.clock import as_datetime
from fmq.errors import BadOption, Damaged, NotAStore
from fmq.spark.options import parse
from fmq.spark.part import SparkPart
from fmq.spark.stream import Offset, StreamReader
from fmq.spark.types import spark_schema
from fmq.table import Outrun, Overtaken
from fmq.table.schema import schema_of
from fmq.testing import FakeClock

SEGMENT_BYTES = 4096


class Planned:
    """A stream that is asked for batches; each `life` is a new process that goes on."""

    def __init__(self, *paths: Path, at: Offset | None = None, **options: Any) -> None:
        self.given = {"paths": json.dumps([str(path) for path in paths]), **options}
        self.at = at
        self.clock = FakeClock()
        self.life()

    def life(self, **options: Any) -> None:
        self.given |= options
        chosen = parse({name: str(value) for name, value in self.given.items()})
        schema = spark_schema(schema_of(chosen.view, None, fleet=False))
        self.reader = StreamReader(chosen, schema, self.clock)
        if self.at is None:
            self.at = self.reader.initialOffset()

    def batch(self) -> list[bytes]:
        """The bodies of the next batch."""
        start = self.at
        end = self.plan()
        return self.bodies(start, end)

    def plan(self) -> Offset:
        assert self.at is not None
        # Through JSON, as a checkpoint keeps them.
        self.at = json.loads(json.dumps(self.at))
        self.at = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        return self.at

    def bodies(self, start: Offset | None, end: Offset) -> list[bytes]:
        assert start is not None
        return [
            body.as_py()
            for part in self.reader.partitions(start, end)
            for batch in self.reader.read(part)
            for body in batch.column("body")
        ]

    def rest(self) -> list[list[bytes]]:
        """Batches until there is nothing more."""
        found: list[list[bytes]] = []
        while True:
            before = self.at
            batch = self.batch()
            if before == self.at:
                return found
            found.append(batch)

    @property
    def skipped(self) -> int:
        assert self.at is not None
        return sum(mark["skipped_bytes"] for mark in self.at.values())


def engine_at(path: Path, **options: Any) -> fmq.Engine:
    chosen = fmq.Options(**{"segment_bytes": SEGMENT_BYTES, **options})
    return fmq.open(path, chosen, background=False)


def send(path: Path, *bodies: bytes, **options: Any) -> None:
    with engine_at(path, **options) as engine:
        for body in bodies:
            engine.send("orders", body)


def large(number: int) -> bytes:
    return b"%d " % number + b"x" * 800


def test_a_stream_offset_has_the_position_of_each_store(tmp_path: Path) -> None:
    send(tmp_path / "a", b"1", b"2")
    stream = Planned(tmp_path / "a")
    assert stream.batch() == [b"1", b"2"]
    with fmq.open(tmp_path / "a", read_only=True) as engine:
        visible_to = engine.visible_to
    assert stream.at is not None
    assert [list(mark.values()) for mark in stream.at.values()] == [[visible_to, 0]]
    assert stream.reader.reportLatestOffset() == stream.at
    assert stream.batch() == []


def test_starting_at_latest_leaves_out_earlier_messages(tmp_path: Path) -> None:
    send(tmp_path / "a", b"old")
    stream = Planned(tmp_path / "a", startingPosition="latest")
    send(tmp_path / "a", b"new")
    assert stream.rest() == [[b"new"]]


def test_a_stream_begins_at_a_time(tmp_path: Path) -> None:
    """At the append that has the first message of that time, wherever in a segment it lies."""
    clock = FakeClock()
    options = fmq.Options(segment_bytes=SEGMENT_BYTES)
    with fmq.open(tmp_path / "a", options, clock=clock, background=False) as engine:
        times = []
        for number in range(20):
            times.append(as_datetime(clock.time_us()))
            engine.send_many("orders", [large(number), b"%d" % number])
            clock.advance(60)
    whole = [body for batch in Planned(tmp_path / "a").rest() for body in batch]
    for number in (0, 1, 7, 19):
        late = times[number] - timedelta(seconds=30)
        for time in (times[number], late, late.replace(tzinfo=None)):
            stream = Planned(tmp_path / "a", startingPosition=time.isoformat())
            assert [body for batch in stream.rest() for body in batch] == whole[2 * number :]
    late = times[-1] + timedelta(seconds=1)
    stream = Planned(tmp_path / "a", startingPosition=late.isoformat())
    assert stream.rest() == []
    send(tmp_path / "a", b"new")
    assert stream.rest() == [[b"new"]]


def test_a_batch_waits_for_enough_messages_or_for_the_delay(tmp_path: Path) -> None:
    send(tmp_path / "a", b"1", b"2")
    least: dict[str, Any] = {"minRecordsPerTrigger": 3, "maxTriggerDelay": 60}
    stream = Planned(tmp_path / "a", **least)
    assert stream.reader.getDefaultReadLimit() == ReadMinRows(3)
    assert stream.rest() == []
    send(tmp_path / "a", b"3")
    assert stream.rest() == [[b"1", b"2", b"3"]]
    stream.clock.advance(1000)  # nothing waited meanwhile
    send(tmp_path / "a", b"4")
    assert stream.rest() == []
    stream.clock.advance(59)
    assert stream.rest() == []
    stream.clock.advance(1)
    assert stream.rest() == [[b"4"]]
    send(tmp_path / "a", *map(large, range(20)))  # over several segments
    stream.life(maxRecordsPerTrigger=10)
    assert [len(batch) for batch in stream.rest()] == [10, 10]
    send(tmp_path / "b", b"b1", b"b2")
    both = Planned(tmp_path / "*", **least | {"minRecordsPerTrigger": 25})
    assert sum(map(len, both.rest())) == 26


def test_a_run_that_ends_does_not_wait_for_more_messages(tmp_path: Path) -> None:
    send(tmp_path / "a", b"1")
    stream = Planned(tmp_path / "a", minRecordsPerTrigger=3)
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.rest() == [[b"1"]]


def test_a_gap_is_told_though_too_few_messages_are_there(tmp_path: Path) -> None:
    send(tmp_path / "a", b"1")
    stream = Planned(tmp_path / "a", minRecordsPerTrigger=1_000_000)
    outrun(tmp_path / "a")
    with pytest.raises(Outrun):
        stream.plan()


def test_a_new_directory_joins_a_stream_from_its_beginning(tmp_path: Path) -> None:
    """This holds with startingPosition=latest too: everything in it has come since."""
    send(tmp_path / "a", b"old")
    stream = Planned(tmp_path / "*", startingPosition="latest")
    (tmp_path / "begun").mkdir()
    assert stream.rest() == []
    send(tmp_path / "begun", b"b1", b"b2")
    send(tmp_path / "a", b"a1")
    assert sorted(body for batch in stream.rest() for body in batch) == [b"a1", b"b1", b"b2"]


def test_a_named_path_without_a_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for path in (tmp_path / "a", tmp_path / "none", tmp_path / "none*"):
        with pytest.raises(NotAStore, match=path.name.replace("*", r"\*")):
            Planned(path)


def test_a_stream_goes_on_after_a_directory_is_moved(tmp_path: Path) -> None:
    send(tmp_path / "a", b"1")
    stream = Planned(tmp_path / "*")
    assert stream.rest() == [[b"1"]]
    (tmp_path / "a").rename(tmp_path / "b")
    send(tmp_path / "b", b"2")
    assert stream.rest() == [[b"2"]]


def test_each_message_of_a_directory_and_its_copy_comes_once(tmp_path: Path) -> None:
    """The one that reaches further is read."""
    send(tmp_path / "a", b"1")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    send(tmp_path / "b", b"2")
    stream = Planned(tmp_path / "*")
    assert stream.rest() == [[b"1", b"2"]]


def test_a_missing_directory_keeps_its_place_in_the_offset(tmp_path: Path) -> None:
    """A planned batch of it raises. When it is back, reading goes on."""
    send(tmp_path / "a", b"a")
    send(tmp_path / "b", b"b")
    stream = Planned(tmp_path / "*")
    start, end = stream.at, stream.plan()
    (tmp_path / "b").rename(tmp_path.parent / "aside")
    with pytest.raises(NotAStore, match=r"was still to be read\. Nothing of it was"):
        stream.bodies(start, end)
    assert stream.rest() == []
    (tmp_path.parent / "aside").rename(tmp_path / "b")
    send(tmp_path / "b", b"more")
    assert stream.rest() == [[b"more"]]


def test_limits_hold_over_all_directories_together(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        send(tmp_path / name, *[large(number) for number in range(9)])
    stream = Planned(tmp_path / "*", maxRecordsPerTrigger=4)
    sizes = [len(batch) for batch in stream.rest()]
    assert max(sizes) == 4
    assert sum(sizes) == 27


def test_both_limits_hold_when_both_are_given(tmp_path: Path) -> None:
    with engine_at(tmp_path / "a") as engine:
        for _ in range(10):
            engine.send_many("orders", [b""] * 10)
        for number in range(10):
            engine.send("orders", large(number))
    stream = Planned(tmp_path / "a", maxRecordsPerTrigger=20, maxBytesPerTrigger=3000)
    batches = stream.rest()
    assert {len(batch) for batch in batches[:5]} == {20}
    assert all(sum(map(len, batch)) <= 3000 for batch in batches)
    assert sum(map(len, batches)) == 110


def test_a_trigger_that_runs_once_ignores_the_limits(tmp_path: Path) -> None:
    send(tmp_path / "a", *[large(number) for number in range(9)])
    stream = Planned(tmp_path / "a", maxRecordsPerTrigger=2)
    assert stream.at is not None
    end = stream.reader.latestOffset(stream.at, ReadAllAvailable())
    assert len(stream.bodies(stream.at, end)) == 9


@pytest.mark.parametrize("limit", ["maxRecordsPerTrigger", "maxBytesPerTrigger"])
def test_an_append_larger_than_the_limit_comes_as_a_whole(tmp_path: Path, limit: str) -> None:
    """It is a transaction over two queues, and is alone in its batch."""
    with engine_at(tmp_path / "a") as engine:
        engine.send("orders", b"before")
        with engine.transaction() as tx:
            tx.send_many("orders", [b"o"] * 5)
            tx.send_many("emails", [b"e"] * 5)
        engine.send("orders", b"after")
    options: dict[str, Any] = {limit: 1}
    batches = Planned(tmp_path / "a", **options).rest()
    assert [batch for batch in batches if batch] == [
        [b"before"],
        [b"o"] * 5 + [b"e"] * 5,
        [b"after"],
    ]


def test_a_busy_directory_does_not_delay_another_for_ever(tmp_path: Path) -> None:
    """An append larger than the limit comes, although the other could fill every batch."""
    send(tmp_path / "a", *[b"small"] * 20)
    send(tmp_path / "b", b"x" * 3000)
    stream = Planned(tmp_path / "*", maxBytesPerTrigger=1000)
    seen: list[bytes] = []
    for _ in range(6):
        send(tmp_path / "a", *[b"small"] * 20)
        seen += stream.batch()
    assert b"x" * 3000 in seen


def test_available_now_reads_only_up_to_where_it_began(tmp_path: Path) -> None:
    """Neither later messages nor later directories keep it from ending."""
    send(tmp_path / "a", b"1", b"2", b"3")
    stream = Planned(tmp_path / "*", maxRecordsPerTrigger=2)
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.batch() == [b"1", b"2"]
    send(tmp_path / "a", b"4")
    send(tmp_path / "b", b"b")
    assert stream.rest() == [[b"3"]]
    stream.life()
    stream.reader.prepareForTriggerAvailableNow()
    assert sorted(body for batch in stream.rest() for body in batch) == [b"4", b"b"]


def test_a_planned_batch_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """After a crash Spark asks for it again, and more messages have come since."""
    send(tmp_path / "a", *[large(number) for number in range(9)])
    stream = Planned(tmp_path / "a", maxRecordsPerTrigger=7)
    start, end = stream.at, stream.plan()
    once = stream.bodies(start, end)
    send(tmp_path / "a", *[large(number) for number in range(9)])
    stream.life()
    assert stream.bodies(start, end) == once
    assert len(once) == 7


def test_undecided_messages_delay_no_others_and_come_when_committed(tmp_path: Path) -> None:
    with engine_at(tmp_path / "a") as engine:
        stream = Planned(tmp_path / "a")
        tx = engine.transaction(tx_id="order-1")
        tx.send("orders", b"in a transaction")
        tx.prepare()
        engine.send("orders", b"after it")
        engine.checkpoint()
        assert stream.rest() == [[b"after it"]]
        engine.decide("order-1", "commit", reason="paid")
        engine.checkpoint()
        assert stream.rest() == [[b"in a transaction"]]


def test_batches_beside_a_writing_engine_have_whole_transactions(
    tmp_path: Path,
) -> None:
    """Each message comes once, over rolls and checkpoints."""
    count = 400
    with fmq.open(tmp_path / "a", fmq.Options(segment_bytes=SEGMENT_BYTES)) as engine:

        def write() -> None:
            for number in range(count):
                with engine.transaction(tx_id=f"tx-{number}") as tx:
                    tx.send("orders", b"%d" % number)
                    tx.send("emails", b"%d" % number)
            engine.checkpoint()

        writer = threading.Thread(target=write)
        stream = Planned(tmp_path / "a", maxRecordsPerTrigger=7)
        found = list[bytes]()
        writer.start()
        while writer.is_alive():
            batch = stream.batch()
            assert len(batch) % 2 == 0
            found += batch
        writer.join()
        found += [body for batch in stream.rest() for body in batch]
    assert found == [b"%d" % number for number in range(count) for _ in range(2)]


def test_records_and_transactions_can_be_streamed(tmp_path: Path) -> None:
    """Records come when they are written, transactions when they are decided."""
    with engine_at(tmp_path / "a") as engine:
        engine.transaction(tx_id="open").prepare()
        engine.transaction(tx_id="done").prepare()
        engine.decide("done", "rollback", reason="no")
    for view, expected in (("records", 3), ("transactions", 1)):
        stream = Planned(tmp_path / "a", view=view)
        start, end = stream.at, stream.plan()
        assert start is not None
        rows = [
            row
            for part in stream.reader.partitions(start, end)
            for batch in stream.reader.read(part)
            for row in batch.to_pylist()
        ]
        assert len(rows) == expected
    assert rows[0]["tx_id"] == "done"


def test_the_view_damage_cannot_be_streamed(tmp_path: Path) -> None:
    send(tmp_path / "a", b"1")
    with pytest.raises(BadOption, match="no stream of it"):
        Planned(tmp_path / "a", view="damage").plan()


def test_shipped_segments_stream_as_they_arrive(tmp_path: Path) -> None:
    """Copy the sealed segments of an engine one by one to another directory."""
    with engine_at(tmp_path / "a") as engine:
        for number in range(20):
            engine.send("orders", large(number))
    names = sorted(file.name for file in (tmp_path / "a").glob("*.seg"))[:-1]
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    stream, found = None, list[bytes]()
    for name in names:
        shutil.copy(tmp_path / "a" / name, shipped / name)
        stream = stream or Planned(shipped, maxRecordsPerTrigger=3)
        found += [body for batch in stream.rest() for body in batch]
    assert found == [large(number) for number in range(len(found))]
    assert len(found) > 15


@pytest.mark.parametrize("index", ["with", "without"])
def test_damage_ends_a_strict_stream_and_a_permissive_one_goes_on(
    tmp_path: Path, index: str
) -> None:
    """The error names the file. Sound messages come once, and within the limits."""
    send(tmp_path / "a", *[large(number) for number in range(30)])
    damaged = sorted((tmp_path / "a").glob("*.seg"))[2]
    if index == "without":
        damaged.with_suffix(".idx").unlink()
    data = bytearray(damaged.read_bytes())
    data[2000] ^= 1
    damaged.write_bytes(data)
    stream = Planned(tmp_path / "a", maxRecordsPerTrigger=5)
    with pytest.raises(Damaged, match=damaged.name):
        stream.rest()
    stream = Planned(tmp_path / "a", maxRecordsPerTrigger=5, mode="permissive")
    batches = stream.rest()
    found = [body for batch in batches for body in batch]
    assert max(map(len, batches)) <= 5
    assert found == [body for body in map(large, range(30)) if body in found]
    assert 25 <= len(found) < 30


# --- retention is faster --------------------------------------------------------------------------


def outrun(path: Path) -> None:
    """Much is sent, and retention drops all but the end of it."""
    with engine_at(path, retain_bytes=3 * SEGMENT_BYTES) as engine:
        for number in range(40):
            engine.send("orders", large(number))
        engine.checkpoint()
        assert engine.stats().first_position > 4 * SEGMENT_BYTES


def kept(path: Path) -> list[bytes]:
    with fmq.open(path, read_only=True) as engine:
        [queue] = engine.queues("orders")
        return [bytes(message.body) for message in engine.read("orders", offset=queue.first)]


def test_messages_dropped_before_they_were_read_raise_outrun(tmp_path: Path) -> None:
    """The error says what is lost and what to do. It is raised again until that is done."""
    send(tmp_path / "a", b"1")
    stream = Planned(tmp_path / "a")
    assert stream.rest() == [[b"1"]]
    outrun(tmp_path / "a")
    for _ in range(2):
        with pytest.raises(Outrun, match=r"from position \d+ up to \d+, [\d,]+ bytes, was dropped"):
            stream.plan()
        stream.life()
    stream.life(onGap="skip")
    assert [body for batch in stream.rest() for body in batch] == kept(tmp_path / "a")


def test_a_skipped_gap_is_counted_in_the_stream_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning is logged. The messages that are left come once."""
    send(tmp_path / "a", b"1")
    stream = Planned(tmp_path / "a")
    assert stream.rest() == [[b"1"]]
    outrun(tmp_path / "a")
    with pytest.raises(Outrun) as caught:
        stream.plan()
    stream.life(onGap="skip")
    with caplog.at_level(logging.WARNING):
        assert stream.rest() == [kept(tmp_path / "a")]
    assert stream.skipped == caught.value.end - caught.value.start > 4 * SEGMENT_BYTES - 200
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_gap_in_a_planned_batch_is_counted_in_the_next(tmp_path: Path) -> None:
    """Retention drops it between the plan and the read, as when the query is stopped for long."""
    send(tmp_path / "a", *[large(number) for number in range(12)])
    stream = Planned(tmp_path / "a", onGap="skip", maxRecordsPerTrigger=10)
    start, end = stream.at, stream.plan()
    outrun(tmp_path / "a")
    stream.life()
    assert stream.bodies(start, end) == []
    assert stream.skipped == 0
    assert [body for batch in stream.rest() for body in batch] == kept(tmp_path / "a")
    with pytest.raises(Outrun) as caught:
        Planned(tmp_path / "a", at=start).plan()
    assert stream.skipped == caught.value.end - caught.value.start
    stream.life(onGap="fail")
    with pytest.raises(Outrun, match="onGap=skip"):
        stream.bodies(start, end)


def test_a_part_dropped_before_its_task_raises_or_is_skipped(tmp_path: Path) -> None:
    """The option onGap chooses."""
    send(tmp_path / "a", *[large(number) for number in range(12)])
    stream = Planned(tmp_path / "a")
    start, end = stream.at, stream.plan()
    assert start is not None
    parts = stream.reader.partitions(start, end)
    outrun(tmp_path / "a")
    [first, *_] = parts
    assert isinstance(first, SparkPart)
    with pytest.raises(Overtaken, match=f"{first.splits[0].file} was dropped"):
        list(stream.reader.read(first))
    stream.life(onGap="skip")
    assert list(stream.reader.read(first)) == []
