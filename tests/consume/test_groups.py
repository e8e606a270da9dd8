"""Groups as things: they are made, moved, made to pass over messages, and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fmq import Engine
from fmq.consume.administration import group_changes
from fmq.errors import (
    BadName,
    BadOption,
    GroupExists,
    LeaseLost,
    OffsetBeyond,
    StillUndecided,
    UnknownGroup,
)
from fmq.steps.call_steps import Durable
from fmq.testing.inside import inside
from tests.small import CrashDisk, check, fill, opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk) as engine:
        for number in range(10):
            engine.send("t", b"%d" % number)
        yield engine
    check(disk)


def taken(engine: Engine, group: str = "g", topic: str = "t") -> list[bytes]:
    """Return the messages that a new member of the group gets now, and ack them."""
    got = []
    with engine.consumer(topic, group=group) as consumer:
        while deliveries := consumer.poll():
            for delivery in deliveries:
                got.append(delivery.body)
                delivery.ack()
    return got


@pytest.mark.parametrize(
    ("at", "first"), [("earliest", b"0"), ("latest", b"new"), (7, b"7"), (10, b"new")]
)
def test_a_group_begins_where_it_was_made(
    engine: Engine, disk: CrashDisk, at: str | int, first: bytes
) -> None:
    engine.create_group("g", "t", at=at)
    engine.send("t", b"new")
    engine.close()
    with opened(disk) as again:
        assert taken(again)[0] == first


def test_a_group_is_made_once_for_each_topic(engine: Engine) -> None:
    engine.create_group("g", "t")
    with pytest.raises(GroupExists, match="seek"):
        engine.create_group("g", "t")
    engine.create_group("g", "later", at="latest")
    engine.send("later", b"x")
    assert taken(engine, topic="later") == [b"x"]


@pytest.mark.parametrize("at", ["first", -1, 11, 1.5])
def test_a_group_cannot_begin_at_an_impossible_place(engine: Engine, at: object) -> None:
    with pytest.raises((BadOption, OffsetBeyond, TypeError)):
        engine.create_group("g", "t", at=at)  # type: ignore[arg-type]
    with pytest.raises(UnknownGroup):
        engine.group("g")


def test_a_seek_back_redelivers_what_was_acked_and_is_durable(
    engine: Engine, disk: CrashDisk
) -> None:
    assert len(taken(engine)) == 10
    engine.group("g").seek("t", offset=8)
    assert taken(engine) == [b"8", b"9"]
    engine.group("g").seek("t", to="earliest")
    engine.close()
    with opened(disk) as again:
        assert len(taken(again)) == 10


def test_a_seek_forward_passes_over_messages(engine: Engine) -> None:
    engine.create_group("g", "t")
    engine.group("g").seek("t", to="latest")
    assert taken(engine) == []
    engine.send("t", b"new")
    assert taken(engine) == [b"new"]


def test_a_seek_takes_delivered_messages_from_their_consumers(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        old = consumer.poll(limit=3)
        engine.group("g").seek("t", offset=1)
        with pytest.raises(LeaseLost):
            old[1].ack()
        with pytest.raises(LeaseLost):
            old[2].release()
        assert [each.body for each in consumer.poll(limit=2)] == [b"1", b"2"]


def test_a_transaction_that_holds_a_delivery_loses_it_by_a_seek(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        tx = engine.transaction()
        tx.ack(delivery)
        tx.send("u", b"x")
        engine.group("g").seek("t", offset=0)
        with pytest.raises(LeaseLost):
            tx.commit()
        tx.rollback()
        assert engine.groups("g")[0].acked_below == 0
        assert [each.body for each in consumer.poll(limit=1)] == [b"0"]


def test_an_undecided_ack_prevents_a_seek(engine: Engine, disk: CrashDisk) -> None:
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        tx = engine.transaction(tx_id="pay-1")
        tx.ack(delivery)
        tx.prepare()
        group = engine.group("g")
        for step in (
            lambda: group.seek("t", to="earliest"),
            lambda: group.skip("t", 0, 0),
            group.delete,
        ):
            with pytest.raises(StillUndecided, match="pay-1"):
                step()
        tx.commit()
        group.seek("t", offset=0)
    assert len(taken(engine)) == 10


def test_skipped_messages_are_passed_over_and_counted(engine: Engine, disk: CrashDisk) -> None:
    engine.create_group("g", "t")
    engine.group("g").skip("t", 0, 2, count=2)
    assert taken(engine) == [b"0", b"1", *(b"%d" % n for n in range(4, 10))]
    engine.group("g").skip("t", 0, 3)  # acked by now, so it is not counted again
    engine.close()
    with opened(disk) as again:
        (info,) = again.groups("g")
        assert (info.skipped, info.unread) == (2, 0)


def test_bad_skips_are_refused(engine: Engine) -> None:
    engine.create_group("g", "t")
    group = engine.group("g")
    with pytest.raises(OffsetBeyond):
        group.skip("t", 0, 10)
    with pytest.raises(BadName):
        group.skip("t", 1, 0)
    with pytest.raises(BadOption):
        group.skip("t", 0, 0, count=0)
    with pytest.raises(UnknownGroup, match="takes from t, and not from u"):
        group.skip("u", 0, 0)


def test_a_deleted_group_is_gone_in_all_topics(engine: Engine, disk: CrashDisk) -> None:
    engine.send("u", b"x")
    with engine.consumer(["t", "u"], group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        engine.group("g").delete()
        with pytest.raises(LeaseLost):
            delivery.ack()
        with pytest.raises(UnknownGroup, match="was deleted"):
            consumer.poll()
    with pytest.raises(UnknownGroup):
        engine.group("g")
    engine.close()
    with opened(disk) as again:
        assert again.groups() == []
        assert len(taken(again)) == 10  # it begins anew


def test_seek_takes_exactly_one_target(engine: Engine) -> None:
    engine.create_group("g", "t")
    group = engine.group("g")
    with pytest.raises(BadOption, match="one of"):
        group.seek("t")
    with pytest.raises(BadOption, match="one of"):
        group.seek("t", offset=1, to="latest")
    with pytest.raises(BadOption):
        group.seek("t", to="middle")


def test_unacked_messages_dropped_by_retention_are_counted_and_logged(
    disk: CrashDisk, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(disk, retain_bytes=8192, keep_unread=False) as engine:
        engine.send("t", b"0")
        engine.create_group("g", "t")
        fill(engine, "t")
        fill(engine, "t")
        (lane,), (info,) = engine.queues("t"), engine.groups("g")
        assert info.lost == lane.first > 0
        engine.checkpoint()
    assert "'g' has lost" in caplog.text
    with opened(disk, retain_bytes=8192, keep_unread=False) as engine:
        assert engine.groups("g")[0].lost == info.lost
        assert len(taken(engine)) == lane.next - lane.first
    check(disk)


def test_a_replay_from_after_an_ack_counts_skipped_and_lost_messages_alike(
    disk: CrashDisk,
) -> None:
    """The segment that says what the group had acked is dropped. `check` replays what is left."""
    with opened(disk, retain_bytes=8192, keep_unread=False) as engine:
        for number in range(5):
            engine.send("t", b"%d" % number)
        engine.create_group("g", "t", at=3)
        fill(engine, "t")
        engine.group("g").skip("t", 0, 2, count=3)
        fill(engine, "t")
        fill(engine, "t")
        (info,) = engine.groups("g")
        assert info.skipped == 2
    check(disk)


def test_a_group_made_again_after_its_deletion_gets_everything_again(engine: Engine) -> None:
    """Also of queues that the first one had read to their ends, and that nothing is sent to."""
    engine.create_topic("wide", queues=3)
    for number in range(3):
        engine.send("wide", b"%d" % number, queue=number)
    for _ in range(2):
        with engine.consumer("wide", group="g") as consumer:
            assert sorted(bytes(each.body) for each in all_of(consumer)) == [b"0", b"1", b"2"]
            assert consumer.poll() == []
        engine.group("g").delete()


def all_of(consumer: Any) -> list[Any]:
    """All deliveries that there are, acked."""
    found = []
    while deliveries := consumer.poll():
        found += deliveries
        for delivery in deliveries:
            delivery.ack()
    return found


def test_a_seek_counts_skipped_messages_and_no_redelivered_ones(
    engine: Engine, disk: CrashDisk
) -> None:
    engine.send_many("t", [b"%d" % number for number in range(10)])
    engine.create_group("g", "t")
    with engine.consumer("t", group="g") as consumer:
        for delivery in consumer.poll(limit=3):
            delivery.ack()
    engine.group("g").seek("t", offset=8)
    assert engine.groups("g")[0].skipped == 5
    engine.group("g").seek("t", offset=2)
    assert engine.groups("g")[0].skipped == 5
    engine.group("g").seek("t", to="latest")
    assert engine.groups("g")[0].skipped == 5 + engine.queues("t")[0].next - 2


def test_a_group_that_never_acked_keeps_its_messages(disk: CrashDisk) -> None:
    with opened(disk, retain_bytes=8192) as engine:
        engine.send("t", b"0")
        engine.create_group("g", "t")
        fill(engine, "t")
        fill(engine, "t")
        assert engine.queues("t")[0].first == 0
        engine.group("g").delete()
        fill(engine, "t")
        assert engine.queues("t")[0].first > 0
    check(disk)


def test_explain_lists_members_with_their_queues(engine: Engine) -> None:
    with engine.consumer("t", group="g", member="ada") as consumer:
        consumer.poll(limit=1)[0].ack()
        text = engine.group("g").explain()
    assert "t: ada compete for its messages" in text
    assert "queue 0: acked below 1, 9 unread" in text


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_a_change_made_in_steps_leaves_each_write_to_its_driver(disk: CrashDisk, sync: str) -> None:
    """A loop drives it. A write between two steps would block all its clients.

    Method: two calls join one group. The first is planned and not written, so the second has
    nothing to change, and has to wait until the change of the first is shown.
    """
    with opened(disk, sync=sync) as engine:
        engine.send("t", b"1")
        parts = inside(engine)
        queue, ledger = parts.commit_queue, parts.ledger
        joins = [
            parts.changes.writing(group_changes.join(parts.changes, "g", ["t"])) for _ in range(2)
        ]
        planned = next(joins[0])
        assert isinstance(planned, Durable)
        queue.submit(planned.plan, planned.what, lambda error: None)
        writes = disk.operations
        wait = next(joins[1])
        assert disk.operations == writes, "it has not written"
        assert isinstance(wait, Durable)
        assert queue.run(wait.plan, wait.what, wait.sync) is None
        assert ledger.shown_to > ledger.changed_at, "the step has waited"
        writes = disk.operations
        with pytest.raises(StopIteration):
            joins[1].send(None)
        assert disk.operations == writes
        with pytest.raises(StopIteration):
            joins[0].send(None)
    check(disk)
