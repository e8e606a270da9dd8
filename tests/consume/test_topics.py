"""Topics as things: they are made beforehand, get more queues, and keep messages for a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmq
from fmq import Engine
from fmq.errors import (
    BadName,
    BadOption,
    LeaseLost,
    OffsetGone,
    StillUndecided,
    TooMany,
    TopicExists,
    TopicInUse,
    UnknownTopic,
)
from tests.small import CrashDisk, FakeClock, bodies, check, fill, opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(disk: CrashDisk, clock: FakeClock) -> Iterator[Engine]:
    with opened(disk, clock) as engine:
        yield engine
    check(disk)


def test_a_topic_can_be_made_before_its_first_message(engine: Engine, disk: CrashDisk) -> None:
    topic = engine.create_topic("t", queues=3)
    assert [each.queue for each in topic.queues()] == [0, 1, 2]
    assert engine.send("t", b"x", queue=2).offset == 0
    with pytest.raises(TopicExists):
        engine.create_topic("t")
    engine.close()
    with opened(disk) as again:
        assert len(again.topic("t").queues()) == 3


def test_a_topic_made_by_a_message_cannot_be_made_again(engine: Engine) -> None:
    engine.send("t", b"x")
    with pytest.raises(TopicExists, match=r"engine\.topic"):
        engine.create_topic("t")
    with pytest.raises(UnknownTopic):
        engine.topic("u")


def test_queues_are_added_and_are_consumed(engine: Engine, disk: CrashDisk) -> None:
    engine.send("t", b"0")
    with engine.consumer("t", group="g") as consumer, engine.consumer("t", group="g") as other:
        assert len(consumer.poll()) == 1
        engine.topic("t").add_queues(2)
        engine.send("t", b"1", queue=1)
        engine.send("t", b"2", queue=2)
        assert {each.body for each in (*consumer.poll(), *other.poll())} == {b"1", b"2"}
    with engine.consumer("t", group="h", strategy="average") as consumer:
        engine.topic("t").add_queues(1)
        engine.send("t", b"3", queue=3)
        found = [each.body for _ in range(4) for each in consumer.poll()]
        assert sorted(found) == [b"0", b"1", b"2", b"3"]
    engine.close()
    with opened(disk) as again:
        assert bodies(again, "t", 3) == [b"3"]


@pytest.mark.parametrize("count", [0, -1, 5000, 1.5])
def test_too_many_queues_cannot_be_added(engine: Engine, count: object) -> None:
    engine.send("t", b"0")
    with pytest.raises((BadOption, TooMany, TypeError)):
        engine.topic("t").add_queues(count)  # type: ignore[arg-type]
    with pytest.raises(BadName):
        engine.send("t", b"0", queue=1)


def test_a_topic_keeps_messages_for_its_own_time(
    engine: Engine, disk: CrashDisk, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What it takes from a group is counted and logged."""
    engine.create_topic("t", retain_seconds=60)
    engine.create_group("g", "t")
    engine.send("t", b"old")
    engine.send("u", b"old")
    clock.advance(50)
    engine.send("t", b"new")
    clock.advance(20)
    engine.sync()
    assert bodies(engine, "t", offset=1) == [b"new"]
    with pytest.raises(OffsetGone):
        engine.read("t")
    assert bodies(engine, "u") == [b"old"]
    (info,) = engine.groups("g")
    assert (info.lost, info.acked_below, info.unread) == (1, 1, 1)
    assert caplog.text.count("'g' has lost 1 messages of the topic 't'") == 1
    engine.topic("t").retain(None)
    clock.advance(1000)
    engine.sync()
    engine.close()
    with opened(disk, clock) as again:
        assert bodies(again, "t", offset=1) == [b"new"]
        assert again.groups("g")[0].lost == 1


@pytest.mark.parametrize("seconds", [0, -1, 1e12, "7"])
def test_a_bad_retention_of_a_topic_is_refused(engine: Engine, seconds: object) -> None:
    with pytest.raises((BadOption, TypeError)):
        engine.create_topic("t", retain_seconds=seconds)  # type: ignore[arg-type]


def test_options_add_queues_and_take_none_away(
    disk: CrashDisk, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(disk, topic_queues={"t": 2}) as engine:
        engine.send("t", b"0")
    with opened(disk, topic_queues={"t": 4, "u": 3}) as engine:
        assert len(engine.queues("t")) == 4
    with opened(disk, topic_queues={"t": 1}) as engine:
        assert len(engine.queues("t")) == 4
    assert "has 4 queues, and the options name 1" in caplog.text
    check(disk)


def test_a_deleted_topic_is_gone_and_begins_anew(engine: Engine, disk: CrashDisk) -> None:
    engine.create_topic("t", queues=2)
    engine.send_many("t", [b"old 0", b"old 1"], queue=1)
    with engine.consumer("t", group="g") as consumer:
        (delivery, _) = consumer.poll()
        engine.topic("t").delete()
        with pytest.raises(LeaseLost):
            delivery.ack()
        assert engine.queues("t") == []
        assert engine.read("t", queue=1) == []
        assert consumer.poll() == []
        assert engine.send("t", b"new").offset == 0
        assert [each.body for each in consumer.poll()] == [b"new"]
    engine.checkpoint()
    engine.close()
    with opened(disk) as again:
        assert bodies(again, "t") == [b"new"]
        assert len(again.queues("t")) == 1


def test_old_messages_of_a_name_are_never_read_again(disk: CrashDisk) -> None:
    """It holds for messages in older segments, in the segment being written, and after a
    restart.
    """
    with opened(disk) as engine:
        fill(engine, "t")
        fill(engine, "t")
        engine.send("t", b"last")
        engine.topic("t").delete()
        for number in range(3):
            engine.send("t", b"%d" % number)
        assert bodies(engine, "t") == [b"0", b"1", b"2"]
        fill(engine, "u")
        killed = disk.after_kill()
        assert bodies(engine, "t") == [b"0", b"1", b"2"]
    for each in (disk, killed):
        with opened(each) as engine:
            assert bodies(engine, "t")[:3] == [b"0", b"1", b"2"]
            fill(engine, "u")
            assert bodies(engine, "t") == [b"0", b"1", b"2"]
        with fmq.open("data", read_only=True, disk=each, clock=FakeClock()) as reader:
            assert [each.body for each in reader.read("t", limit=9)] == [b"0", b"1", b"2"]
        check(each)


def test_retention_of_segments_from_before_a_deletion_spares_the_new_topic(disk: CrashDisk) -> None:
    with opened(disk, retain_bytes=8192) as engine:
        fill(engine, "t")
        engine.topic("t").delete()
        engine.create_group("g", "t")
        engine.send("t", b"new")
        fill(engine, "u")
        fill(engine, "u")
        assert engine.queues("t")[0].first == 0
        assert bodies(engine, "t") == [b"new"]
    with opened(disk, retain_bytes=8192) as engine:
        assert bodies(engine, "t") == [b"new"]
    check(disk)


def test_an_undecided_transaction_prevents_the_deletion_of_its_topic(engine: Engine) -> None:
    tx = engine.transaction(tx_id="pay")
    tx.send("t", b"x")
    tx.prepare()
    engine.send("t", b"y")
    with pytest.raises(TopicInUse, match="'pay'"):
        engine.topic("t").delete()
    tx.commit()
    with engine.consumer("t", group="g") as consumer:
        tx = engine.transaction(tx_id="done")
        tx.ack(consumer.poll(limit=1)[0])
        tx.prepare()
        with pytest.raises(StillUndecided):
            engine.topic("t").delete()
        tx.rollback()
    engine.topic("t").delete()
    with pytest.raises(UnknownTopic):
        engine.topic("t")


def test_a_commit_makes_a_topic_again_that_was_deleted_before(engine: Engine) -> None:
    engine.create_topic("t", queues=4)
    with engine.transaction() as tx:
        tx.send("t", b"x", queue=3)
        engine.topic("t").delete()
    assert bodies(engine, "t", 3) == [b"x"]


def test_a_transaction_with_messages_for_a_missing_queue_is_refused(engine: Engine) -> None:
    engine.create_topic("t", queues=4)
    other = engine.transaction()
    other.send("t", b"y", queue=3)
    engine.topic("t").delete()
    engine.send("t", b"z")
    with pytest.raises(BadName, match="queue 3"):
        other.commit()


def test_members_share_a_topic_that_was_made_again(engine: Engine) -> None:
    engine.create_topic("t", queues=4)
    with (
        engine.consumer("t", group="g", strategy="average", member="a") as a,
        engine.consumer("t", group="g", strategy="average", member="b") as b,
    ):
        engine.topic("t").delete()
        assert a.poll() == b.poll() == []
        engine.create_topic("t", queues=2)
        engine.send("t", b"0", queue=0)
        engine.send("t", b"1", queue=1)
        assert [each.body for each in a.poll()] == [b"0"]
        assert [each.body for each in b.poll()] == [b"1"]


def test_a_group_at_the_start_is_the_same_after_a_restart_and_a_trim(
    disk: CrashDisk, clock: FakeClock
) -> None:
    """A checkpoint carries that it was moved, although it has acked nothing."""
    with opened(disk, clock) as engine:
        engine.create_topic("t", retain_seconds=60)
        engine.create_group("g", "t")
        engine.send("t", b"old")
        engine.group("g").seek("t", queue=0, offset=0)
    with opened(disk, clock) as engine:
        clock.advance(70)
        engine.sync()
        assert engine.groups("g")[0].lost == 1
    check(disk)


@pytest.mark.parametrize("order", [[1, 0], [0, 1], [2, 0, 1]])
def test_a_transaction_makes_a_deleted_topic_again_with_all_queues_that_it_has_chosen(
    engine: Engine, disk: CrashDisk, order: list[int]
) -> None:
    engine.create_topic("t", queues=3)
    tx = engine.transaction()
    for number in order:
        tx.send("t", b"%d" % number, queue=number)
    engine.topic("t").delete()
    tx.commit()
    assert [bodies(engine, "t", number) for number in sorted(order)] == [
        [b"%d" % number] for number in sorted(order)
    ]
    check(disk.after_kill())
