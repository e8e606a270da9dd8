"""Dead letters that were replayed count as unread of their group, and apart as replayed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmq
from fmq import Engine
from fmq.errors import LeaseLost
from tests.small import CrashDisk, opened


@pytest.fixture
def engine() -> Iterator[Engine]:
    with opened(CrashDisk(), queues=2) as engine:
        yield engine


def replay(engine: Engine) -> None:
    """Reject six messages, and replay them."""
    for number in range(6):
        engine.send("t", b"%d" % number, key=f"k{number}", queue=number % 2)
    with engine.consumer("t", group="g") as consumer:
        for delivery in consumer.poll() + consumer.poll():
            delivery.reject("no")
    assert engine.dead_letters("g").replay() == 6


def counts(engine: Engine) -> list[tuple[int, int, int]]:
    return [(each.queue, each.unread, each.replayed) for each in engine.groups("g")]


def test_replayed_messages_count_until_they_are_acked(engine: Engine) -> None:
    """All of it counts in the first queue: members compete for it, whichever queue they have."""
    replay(engine)
    assert counts(engine) == [(0, 6, 6), (1, 0, 0)]
    assert engine.stats().replayed == 6
    assert "6 unread, 6 of them replayed" in engine.group("g").explain()
    with engine.consumer("t", group="g") as consumer:
        consumer.poll(limit=2)[0].ack()
    assert counts(engine) == [(0, 5, 5), (1, 0, 0)]
    engine.send("t", b"6", queue=0)
    assert counts(engine) == [(0, 6, 5), (1, 0, 0)]
    assert engine.stats().replayed == 5
    assert engine.groups("other") == []


def test_unread_shows_replayed_messages_as_they_were(engine: Engine) -> None:
    replay(engine)
    engine.send("t", b"6", queue=0)
    found = engine.unread("g", "t")
    assert [each.body for each in found] == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [(each.topic, each.queue, each.offset) for each in found[:3]] == [
        ("t", 0, 0),
        ("t", 1, 0),
        ("t", 0, 1),
    ]
    assert (found[1].key, found[1].headers) == ("k1", None)
    assert len(engine.unread("g", "t", limit=2)) == 2


def test_a_purge_of_all_dead_letters_drops_replayed_ones(engine: Engine) -> None:
    """Those that a consumer has in hand, too."""
    replay(engine)
    with engine.consumer("t", group="g") as consumer:
        (held,) = consumer.poll(limit=1)
        assert engine.dead_letters("g").purge(all=True) == 6
        assert counts(engine) == [(0, 0, 0), (1, 0, 0)]
        with pytest.raises(LeaseLost):
            held.ack()
        assert consumer.poll() == []
    assert engine.dead_letters("g").purge(all=True) == 0


def test_a_purge_of_some_dead_letters_leaves_replayed_ones(engine: Engine) -> None:
    replay(engine)
    with engine.consumer("t", group="g") as consumer:
        (one,) = consumer.poll(limit=1)
        one.reject("again")
    (dead,) = engine.dead_letters("g").list()
    assert engine.dead_letters("g").purge([dead.number]) == 1
    assert counts(engine) == [(0, 5, 5), (1, 0, 0)]


def test_a_purge_leaves_messages_that_a_transaction_acks(engine: Engine) -> None:
    replay(engine)
    with engine.consumer("t", group="g") as consumer:
        tx = engine.transaction(tx_id="T")
        for delivery in consumer.poll(limit=2):
            tx.ack(delivery)
        tx.prepare()
        assert engine.dead_letters("g").purge(all=True) == 4
        assert counts(engine)[0] == (0, 2, 2)
        tx.rollback()
        assert len(consumer.poll()) == 2


def test_replayed_messages_of_a_deleted_topic_count(engine: Engine) -> None:
    replay(engine)
    engine.topic("t").delete()
    assert counts(engine) == [(0, 6, 6)]


def test_a_reader_counts_replayed_messages_alike(disk: CrashDisk) -> None:
    with opened(disk, queues=2) as engine:
        replay(engine)
        with fmq.open("data", disk=disk, read_only=True) as reader:
            assert [(each.unread, each.replayed) for each in reader.groups("g")] == [(6, 6), (0, 0)]
            assert reader.stats().replayed == 6
            assert len(reader.unread("g", "t")) == 6


def test_counts_of_replayed_messages_survive_a_restart() -> None:
    disk = CrashDisk()
    with opened(disk, queues=2) as engine:
        replay(engine)
        with engine.consumer("t", group="g") as consumer:
            consumer.poll(limit=1)[0].ack()
        assert engine.dead_letters("g").count() == 0
        disk = disk.after_kill()
    with opened(disk, queues=2) as engine:
        assert counts(engine) == [(0, 5, 5), (1, 0, 0)]
        assert engine.dead_letters("g").purge(all=True) == 5
        disk = disk.after_power_loss(7)
    with opened(disk, queues=2) as engine:
        assert engine.stats().replayed == 0
