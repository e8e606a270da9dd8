"""What an operator takes from a member that hangs, and from the backlog of a group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import fmq
from fmq.errors import (
    BadOption,
    LeaseLost,
    MemberPutOut,
    OffsetBeyond,
    StillUndecided,
    UnknownGroup,
    UnknownMember,
)
from fmq.testing import CrashDisk, FakeClock
from tests.conftest import OPTIONS, PATH


@pytest.fixture(autouse=True)
def messages(engine: fmq.Engine) -> None:
    engine.send_many("t", [b"%d" % number for number in range(6)])
    engine.create_group("g", "t")


def offsets(consumer: Any, polls: int = 9) -> list[int]:
    return sorted(each.offset for _ in range(polls) for each in consumer.poll())


# --- members --------------------------------------------------------------------------------------


def test_released_messages_of_a_member_go_to_other_members(engine: fmq.Engine) -> None:
    group = engine.group("g")
    with (
        engine.consumer("t", group="g", member="slow") as slow,
        engine.consumer("t", group="g", member="quick") as quick,
    ):
        held = slow.poll(limit=4)
        held[0].ack()
        assert group.release(member="slow", reason="it hangs", by="ann") == 3
        assert [(each.attempt, each.offset) for each in quick.poll(limit=9)] == [(1, 4), (1, 5)]
        again = [each for _ in range(3) for each in quick.poll()]
        assert [(each.attempt, each.offset) for each in again] == [(2, 1), (2, 2), (2, 3)]
        with pytest.raises(LeaseLost):
            held[1].ack()
        assert {each.name for each in group.members()} == {"slow", "quick"}
        assert group.release(member="slow", reason="again") == 0
        assert slow.poll() == []  # it stays in the group


def test_a_member_that_is_put_out_gets_an_error_with_who_and_why(engine: fmq.Engine) -> None:
    group = engine.group("g")
    with (
        engine.consumer("t", group="g", member="quick") as quick,
        engine.consumer("t", group="g", member="slow") as slow,
    ):
        held = slow.poll(limit=3)
        assert group.put_out("slow", reason="it hangs", by="ann") == 3
        with pytest.raises(MemberPutOut, match="by ann: it hangs") as met:
            slow.poll()
        assert (met.value.by, met.value.reason) == ("ann", "it hangs")
        with pytest.raises(LeaseLost):
            held[0].ack()
        assert [each.name for each in group.members()] == ["quick"]
        assert offsets(quick) == [0, 1, 2, 3, 4, 5]
    with engine.consumer("t", group="g", member="slow") as again:
        assert offsets(again) == [0, 1, 2, 3, 4, 5]  # a new one may join under its name


def test_the_queues_of_a_member_that_is_put_out_go_to_others(engine: fmq.Engine) -> None:
    engine.create_topic("wide", queues=2)
    for queue in (0, 1):
        engine.send("wide", b"", queue=queue)
    group = engine.group("g")
    both: dict[str, Any] = {"group": "g", "strategy": "average"}
    with (
        engine.consumer("wide", member="a", **both) as a,
        engine.consumer("wide", member="b", **both) as b,
    ):
        assert [len(each.poll()) for each in (a, b)] == [1, 1]
        group.put_out("b", reason="it hangs")
        assert len(a.poll()) == 1
        [left] = group.members()
        assert left.owns == (("wide", 0), ("wide", 1))


def test_an_unknown_member_cannot_be_released_or_put_out(engine: fmq.Engine) -> None:
    group = engine.group("g")
    for call in (group.release, group.put_out):
        with pytest.raises(UnknownMember, match="no member 'nobody' now"):
            call("nobody", reason="")


def test_putting_a_member_out_twice_is_the_same_as_once(engine: fmq.Engine) -> None:
    """A client whose answer was lost asks again."""
    group = engine.group("g")
    with engine.consumer("t", group="g", member="slow") as slow:
        assert len(slow.poll(limit=2)) == 2
        assert group.put_out("slow", reason="it hangs") == 2
        assert group.put_out("slow", reason="it hangs") == 0
        with pytest.raises(UnknownMember):
            group.release("slow", reason="it is out")
    with engine.consumer("t", group="g", member="slow") as again:
        assert len(again.poll(limit=2)) == 2
        assert group.put_out("slow", reason="it hangs again") == 2


def test_ordered_messages_keep_their_order_when_they_are_released(engine: fmq.Engine) -> None:
    for _ in range(3):
        engine.send("keys", b"", key="k")
    with engine.consumer("keys", group="g", ordered=True, member="a") as consumer:
        assert len(consumer.poll(limit=2)) == 2
        assert engine.group("g").release("a", reason="look again") == 2
        found = [each for _ in range(4) for each in consumer.poll()]
        assert [each.offset for each in found] == [0, 1]
        for each in found:
            each.ack()
        assert offsets(consumer) == [2]


# --- the backlog ----------------------------------------------------------------------------------


def skipped(engine: Any) -> int:
    found: int = engine.groups("g")[0].skipped
    return found


def test_a_backlog_is_purged_up_to_an_offset_and_later_acks_stay(engine: fmq.Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        held = consumer.poll(limit=6)
        held[5].ack()
        engine.group("g").purge("t", offset=3, reason="yesterday's", by="ann")
        assert skipped(engine) == 3
        with pytest.raises(LeaseLost):
            held[0].ack()
        held[4].ack()  # messages after the place stay in hand
        [info] = engine.groups("g")
        assert (info.acked_below, info.acked_beyond, info.unread) == (3, 2, 1)


def test_a_backlog_is_purged_in_all_queues_before_a_time(
    engine: fmq.Engine, disk: CrashDisk, clock: FakeClock
) -> None:
    engine.create_topic("wide", queues=3)
    engine.create_group("g", "wide")
    for number in range(6):
        engine.send("wide", b"old", queue=number % 3)
    clock.advance(60)
    receipts = [engine.send("wide", b"new", queue=number) for number in range(3)]
    [first, *_] = engine.read("wide", offset=receipts[0].offset)
    assert first.time is not None
    engine.group("g").purge("wide", time=first.time - timedelta(seconds=1), reason="", by="ann")
    engine.close()
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False) as again:
        with again.consumer("wide", group="g") as consumer:
            assert [each.body for _ in range(9) for each in consumer.poll()] == [b"new"] * 3
        assert [each.skipped for each in again.groups("g") if each.topic == "wide"] == [6] * 3


def test_a_purge_to_the_latest_leaves_nothing_and_a_second_one_changes_nothing(
    engine: fmq.Engine,
) -> None:
    group = engine.group("g")
    group.purge("t", to="latest", reason="all of it")
    assert skipped(engine) == 6
    position = engine.stats().position
    group.purge("t", to="latest", reason="again")
    group.purge("t", to="earliest", reason="nothing")
    assert engine.stats().position == position
    engine.send("t", b"new")
    with engine.consumer("t", group="g") as consumer:
        assert [each.body for each in consumer.poll()] == [b"new"]


def test_an_impossible_purge_is_refused(engine: fmq.Engine) -> None:
    group = engine.group("g")
    with pytest.raises(BadOption, match="purge takes one of"):
        group.purge("t", reason="")
    with pytest.raises(OffsetBeyond):
        group.purge("t", offset=99, reason="")
    with pytest.raises(UnknownGroup):
        group.purge("other", to="latest", reason="")
    with engine.consumer("t", group="g") as consumer:
        tx = engine.transaction(tx_id="T")
        tx.ack(consumer.poll(limit=1)[0])
        tx.prepare()
        with pytest.raises(StillUndecided):
            group.purge("t", to="latest", reason="")
        tx.rollback()
    assert skipped(engine) == 0
