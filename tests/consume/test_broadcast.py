"""`broadcast=True`: a member that gets every message, and leaves nothing behind when it goes."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import fmq
from fmq import filters
from fmq.errors import BadOption, Closed
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from tests.small import opened

RECLAIM = fmq.Options().reclaim_seconds


def bodies_of(consumer: Any) -> list[bytes]:
    """All that it gets now, acked."""
    found: list[bytes] = []
    while deliveries := consumer.poll():
        for delivery in deliveries:
            found.append(bytes(delivery.body))
            delivery.ack()
    return found


def groups_in(engine: Any) -> list[str]:
    return sorted({group for group, _ in inside(engine).ledger.subscriptions})


def test_each_member_gets_every_message_from_its_beginning_on() -> None:
    with opened(CrashDisk(), topic_queues={"prices": 2}) as engine:
        engine.send("prices", b"before")
        one = engine.consumer("prices", group="screens", broadcast=True)
        engine.send_many("prices", [b"1", b"2"], queue=1)
        two = engine.consumer(["prices", "news"], group="screens", broadcast=True)
        engine.send("prices", b"3", queue=0)
        engine.send("news", b"4")
        assert sorted(bodies_of(one)) == [b"1", b"2", b"3"]
        assert sorted(bodies_of(two)) == [b"3", b"4"]
        assert (one.group, two.group) == ("screens", "screens")
        assert bodies_of(one) == bodies_of(two) == []
        one.close()
        two.close()


def test_a_broadcast_message_that_is_not_acked_is_redelivered() -> None:
    clock = FakeClock()
    with (
        opened(CrashDisk(), clock, lease_seconds=10.0) as engine,
        engine.consumer("t", group="g", broadcast=True) as consumer,
    ):
        engine.send("t", b"1")
        assert len(consumer.poll()) == 1
        assert consumer.poll() == []
        clock.advance(60.0)
        assert bodies_of(consumer) == [b"1"]


def test_a_broadcast_consumer_leaves_nothing_behind_when_closed() -> None:
    disk = CrashDisk()
    with opened(disk) as engine, engine.consumer("t", group="g") as shared:
        before = groups_in(engine)
        with engine.consumer("t", group="g", broadcast=True) as consumer:
            engine.send("t", b"1")
            assert bodies_of(consumer) == bodies_of(shared) == [b"1"]
            assert len(groups_in(engine)) == 2
        assert groups_in(engine) == before == ["g"]
        with pytest.raises(Closed):
            consumer.poll()
    with opened(disk) as engine:
        assert groups_in(engine) == ["g"]
        assert [info.group for info in engine.groups()] == ["g"]


def test_a_broadcast_consumer_leaves_nothing_behind_when_dropped() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        consumer = engine.consumer("t", group="g", broadcast=True)
        assert consumer.poll() == []
        del consumer
        gc.collect()
        with engine.transaction() as tx:  # a client tells of it at its next call of this sort
            tx.send("t", b"1")
        clock.advance(RECLAIM)
        engine.send("t", b"2")
        engine.send("t", b"3")
        assert groups_in(engine) == []


def test_a_killed_broadcast_member_is_removed_soon_after_the_next_opening() -> None:
    """Until then its member may come back by its name, and goes on where it was."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        one = engine.consumer("t", group="g", member="one", broadcast=True)
        two = engine.consumer("t", group="g", member="two", broadcast=True)
        engine.send("t", b"1")
        assert bodies_of(one) == bodies_of(two) == [b"1"]
        engine.send("t", b"2")
        left = disk.after_kill()
        one.close()
        two.close()
    with opened(left, clock) as engine:
        with engine.consumer("t", group="g", member="one", broadcast=True) as again:
            engine.send("t", b"3")
            clock.advance(RECLAIM)
            engine.send("t", b"4")
            engine.send("t", b"5")
            assert len(groups_in(engine)) == 1
            assert bodies_of(again) == [b"2", b"3", b"4", b"5"]
        assert groups_in(engine) == []


def test_a_broadcast_consumer_takes_a_filter_but_no_strategy_order_or_strictness() -> None:
    with opened(CrashDisk()) as engine:
        wanted = filters.tags("up")
        with engine.consumer("t", group="g", filter=wanted, broadcast=True) as consumer:
            engine.send("t", b"1", tag="up")
            engine.send("t", b"2", tag="down")
            assert bodies_of(consumer) == [b"1"]
        shares: list[dict[str, Any]] = [{"strategy": "sticky"}, {"ordered": True}, {"strict": True}]
        for how in shares:
            with pytest.raises(BadOption, match="broadcast"):
                engine.consumer("t", group="g", broadcast=True, **how)
        assert groups_in(engine) == []


def test_a_transaction_may_ack_broadcast_messages() -> None:
    with opened(CrashDisk()) as engine:
        with engine.consumer("in", group="g", broadcast=True) as consumer:
            engine.send("in", b"1")
            with engine.transaction() as tx:
                for delivery in consumer.poll():
                    tx.ack(delivery)
                    tx.send("out", delivery.body)
            assert bodies_of(consumer) == []
        assert [message.body for message in engine.read("out")] == [b"1"]


def test_a_broadcast_member_that_is_gone_keeps_no_segment() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=1) as engine:
        with engine.consumer("t", group="g", broadcast=True):
            for _ in range(20):
                engine.send("t", bytes(1000))
            assert engine.queues("t")[0].first == 0
        engine.send("t", bytes(1000))
        assert engine.queues("t")[0].first > 0
