"""How far each group is in each queue, as `groups()` of both kinds of engine returns it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmq
from fmq import Engine, GroupInfo
from tests.small import CrashDisk, FakeClock, check, fill, opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk, topic_queues={"wide": 3}) as engine:
        engine.send_many("t", [b"0", b"1", b"2", b"3"])
        yield engine
    check(disk)


def ack(engine: Engine, *offsets: int, group: str = "g", topic: str = "t") -> None:
    with engine.consumer(topic, group=group) as consumer:
        for delivery in consumer.poll(limit=999):
            if delivery.offset in offsets:
                delivery.ack()


def test_without_a_consumer_there_is_no_group(engine: Engine) -> None:
    assert engine.read("t")
    assert engine.groups() == []


def test_a_consumer_makes_its_group_before_it_polls(disk: CrashDisk) -> None:
    with opened(disk) as engine, engine.consumer("t", group="g"):
        engine.send("t", b"0")
        assert engine.groups() == [GroupInfo("g", "t", 0, 0, 0, 1)]
    with opened(disk) as engine:
        assert engine.groups() == [GroupInfo("g", "t", 0, 0, 0, 1)]


def test_everything_is_unread_before_the_first_ack(engine: Engine) -> None:
    """A delivered message is unread until its ack is durable."""
    with engine.consumer("t", group="g") as consumer:
        consumer.poll(limit=2)
        assert engine.groups() == [GroupInfo("g", "t", 0, acked_below=0, acked_beyond=0, unread=4)]


@given(acked=st.sets(st.integers(0, 9)))
def test_acked_and_unread_messages_are_counted(acked: set[int]) -> None:
    """Ack any of ten messages. The floor is the first without an ack; acks above it are counted."""
    with opened(CrashDisk()) as engine:
        engine.send_many("t", [b""] * 10)
        ack(engine, *acked)
        (info,) = engine.groups()
    floor = next(offset for offset in range(11) if offset not in acked)
    expected = floor, len(acked) - floor, 10 - len(acked)
    assert (info.acked_below, info.acked_beyond, info.unread) == expected


def test_all_queues_of_a_topic_are_listed_after_the_first_poll(engine: Engine) -> None:
    """So the sum over a topic says how far the group lags."""
    for queue in range(3):
        engine.send_many("wide", [b"0", b"1"], queue=queue)
    with engine.consumer("wide", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        delivery.ack()
    infos = engine.groups()
    assert [(info.topic, info.queue) for info in infos] == [("wide", 0), ("wide", 1), ("wide", 2)]
    assert sum(info.unread for info in infos) == 5


def test_groups_are_counted_separately_and_can_be_selected(engine: Engine) -> None:
    ack(engine, 0, 1, group="b")
    ack(engine, 0, group="a")
    assert [(info.group, info.unread) for info in engine.groups()] == [("a", 3), ("b", 2)]
    assert [info.group for info in engine.groups("b")] == ["b"]
    assert engine.groups("unknown") == []


def test_messages_that_a_transaction_acks_are_unread_until_it_commits(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        tx = engine.transaction(tx_id="T")
        tx.ack(consumer.poll(limit=1)[0])
        tx.prepare()
        assert [info.unread for info in engine.groups()] == [4]
        tx.commit()
        assert [(info.acked_below, info.unread) for info in engine.groups()] == [(1, 3)]


def test_messages_dropped_by_retention_are_not_counted(disk: CrashDisk) -> None:
    """The floor is the first offset of the queue, also for a group that acked nothing after it."""
    with opened(disk, retain_bytes=4096, keep_unread=False) as engine:
        engine.send("t", b"0")
        ack(engine, 0)
        fill(engine, "t")
        engine.checkpoint()
        (lane,) = engine.queues("t")
        assert lane.first > 1
        lost = lane.first - 1
        expected = GroupInfo("g", "t", 0, lane.first, 0, lane.next - lane.first, lost=lost)
        assert engine.groups() == [expected]


def test_counts_are_equal_after_a_restart_and_in_a_reader(disk: CrashDisk, engine: Engine) -> None:
    ack(engine, 0, 2)
    engine.checkpoint()
    expected = [GroupInfo("g", "t", 0, acked_below=1, acked_beyond=1, unread=2)]
    with fmq.open("data", read_only=True, disk=disk, clock=FakeClock()) as reader:
        assert reader.groups() == expected
        assert (reader.groups("g"), reader.groups("h")) == (expected, [])
    with opened(disk.after_kill()) as again:
        assert engine.groups() == again.groups() == expected


def test_a_reader_follows_the_acks_of_a_live_engine(disk: CrashDisk, engine: Engine) -> None:
    with fmq.open("data", read_only=True, disk=disk, clock=FakeClock()) as reader:
        for offset in range(4):
            ack(engine, offset)
            engine.checkpoint()
            assert reader.groups() == engine.groups()
            assert reader.groups()[0].acked_below == offset + 1
