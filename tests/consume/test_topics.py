"""Topics as things: they are made beforehand, get more queues, and keep messages for a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fmq import Engine
from fmq.errors import BadName, BadOption, OffsetGone, TooMany, TopicExists, UnknownTopic
from tests.small import CrashDisk, FakeClock, bodies, check, opened


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


def test_a_topic_is_made_before_its_first_message(engine: Engine, disk: CrashDisk) -> None:
    topic = engine.create_topic("t", queues=3)
    assert [each.queue for each in topic.queues()] == [0, 1, 2]
    assert engine.send("t", b"x", queue=2).offset == 0
    with pytest.raises(TopicExists):
        engine.create_topic("t")
    engine.close()
    with opened(disk) as again:
        assert len(again.topic("t").queues()) == 3


def test_a_topic_that_a_message_has_made_exists(engine: Engine) -> None:
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
def test_so_many_queues_cannot_be_added(engine: Engine, count: object) -> None:
    engine.send("t", b"0")
    with pytest.raises((BadOption, TooMany, TypeError)):
        engine.topic("t").add_queues(count)  # type: ignore[arg-type]
    with pytest.raises(BadName):
        engine.send("t", b"0", queue=1)


def test_a_topic_keeps_messages_for_its_own_time(
    engine: Engine, disk: CrashDisk, clock: FakeClock
) -> None:
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
    engine.topic("t").retain(None)
    clock.advance(1000)
    engine.sync()
    engine.close()
    with opened(disk, clock) as again:
        assert bodies(again, "t", offset=1) == [b"new"]
        assert again.groups("g")[0].lost == 1


@pytest.mark.parametrize("seconds", [0, -1, 1e12, "7"])
def test_a_bad_retention(engine: Engine, seconds: object) -> None:
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
